/** Our parser of Corefiles compared with CoreDNS' own. */
import { execFile } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { parseCorefile } from '../../model/cluster-dns/parse-corefile.ts'
import { addForwardBlock } from '../../model/cluster-dns/forward-block.ts'
import { ALL, arbitraryCorefile } from '../support/corefiles.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { coreDnsMissing, coreDnsProgram } from './coredns/run-coredns.ts'

t.setTimeout(1_800_000)

const OPTIONS = { domain: 'clusterset.local', forwardTo: '10.43.0.99' }

interface Block {
  readonly keys: readonly string[]
  readonly plugins: Readonly<Record<string, readonly string[]>>
}
type Reading = { readonly error: string } | { readonly blocks: readonly Block[] }

/** How CoreDNS parses each text, in the same order. */
async function coreDnsReads(folder: string, texts: readonly string[]): Promise<Reading[]> {
  mkdirSync(folder)
  const files = texts.map((text, index) => {
    const file = join(folder, `Corefile-${index}`)
    writeFileSync(file, text)
    return file
  })
  const env = { ...process.env, HOME: 'from-the-environment' }
  const { stdout } = await promisify(execFile)(await coreDnsProgram(), ['parse', ...files], {
    env,
    maxBuffer: 64 << 20,
  })
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => {
      const { error, blocks } = JSON.parse(line) as { error?: string; blocks: readonly Block[] }
      return error === undefined ? { blocks } : { error }
    })
}

/** How our parser reads it, in the form of CoreDNS. Imports are left out, because none of them finds a file. */
function weRead(text: string): Reading {
  try {
    const servers = parseCorefile(text).items.filter((item) => item.kind === 'server')
    return {
      blocks: servers.map(({ keys, directives }) => {
        const plugins: Record<string, string[]> = {}
        for (const { tokens } of directives.filter(({ name }) => name !== 'import')) {
          // CoreDNS looks a plugin up by the value of the variable, and keeps the word as it was written.
          const [name = '', ...words] = tokens.map((token) => token.text)
          ;(plugins[expanded(name)] ??= []).push(name, ...words.map(expanded))
        }
        return { keys, plugins }
      }),
    }
  } catch (error) {
    return { error: (error as Error).message }
  }
}

function expanded(word: string): string {
  return word.replaceAll('{$HOME}', 'from-the-environment')
}

t.test('Corefiles as CoreDNS reads them', { skip: coreDnsMissing() ?? false }, async (t) => {
  const folder = temporaryFolder(t)
  const { ODD: _withSnippet, ...plain } = ALL
  const corefiles = [...Object.values(plain), ...fc.sample(arbitraryCorefile, 500)]

  await t.test('names, plugins and words are the same', async (t) => {
    const theirs = await coreDnsReads(join(folder, 'plain'), corefiles)
    for (const [index, text] of corefiles.entries()) t.same(weRead(text), theirs[index], JSON.stringify(text))
  })

  await t.test('with our block: theirs, and one more', async (t) => {
    const before = await coreDnsReads(join(folder, 'before'), corefiles)
    const after = await coreDnsReads(
      join(folder, 'after'),
      corefiles.map((text) => addForwardBlock(text, OPTIONS)),
    )
    for (const [index, text] of corefiles.entries()) {
      const [was, is] = [before[index], after[index]]
      if (was === undefined || is === undefined || 'error' in was || 'error' in is) t.fail(JSON.stringify(text))
      else t.same([is.blocks.slice(0, -1), is.blocks.at(-1)?.plugins['cache']], [was.blocks, ['cache', '5']])
    }
  })

  await t.test('with a snippet and all that is odd', async (t) => {
    const [theirs] = await coreDnsReads(join(folder, 'odd'), [addForwardBlock(ALL['ODD'] ?? '', OPTIONS)])
    t.match(theirs, {
      blocks: [
        {
          keys: ['.:5353', 'dns://example.org:5353'],
          plugins: { log: ['log', '.', '{', 'class', 'denial', '}'], errors: ['errors'] },
        },
        { keys: ['tls://example.org'] },
        {
          keys: ['clusterset.local:5353'],
          plugins: { forward: ['forward', '.', '10.43.0.99', '{', 'max_fails', '1', '}'] },
        },
      ],
    })
  })

  await t.test('what CoreDNS refuses we refuse; what we refuse besides is what an edit could change', async (t) => {
    const pieces = fc.constantFrom(
      '.',
      ' ',
      ' ',
      '\n',
      '\n',
      '{\n',
      '}\n',
      '"',
      '\\',
      '#',
      ',',
      '(a)',
      'x',
      '\r',
      '\t',
      'a#b c',
    )
    const texts = fc.sample(
      fc.array(pieces, { minLength: 3, maxLength: 14 }).map((all) => all.join('')),
      2000,
    )
    const theirs = await coreDnsReads(join(folder, 'noise'), texts)
    let understood = 0
    for (const [index, text] of texts.entries()) {
      const ours = weRead(text)
      if ('error' in ours) continue
      understood += 1
      t.same(ours, theirs[index], JSON.stringify(text))
    }
    t.ok(understood > 20, `${understood} of them were understood`)
  })
})
