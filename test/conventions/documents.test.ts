/** Documents are short, have no line wider than a terminal, and name only existing files, documents and headings. */
import { dirname, join, normalize } from 'node:path'
import t from 'tap'
import { DOCUMENT_WIDTH } from '../../scripts/documents/wrap-text.ts'
import { PRODUCT, sourceFiles } from '../support/source-tree.ts'

/** Phrases that readers did not understand. */
const RIDDLES =
  /\b(unseen is not gone|of the mind|(stands?|stood) back|(who|one that) came last|(of|at) nobody\b(?!')|the one who installs|heard it of)\b/i

/** The maximum number of words of a document, as `wc -w` counts them. */
const MOST_WORDS: Readonly<Record<string, number>> = {
  'CHANGELOG.md': 2000,
  'docs/limits.md': 2500,
  'docs/operations.md': 5000,
  'docs/platforms.md': 1500,
  'docs/security.md': 3000,
  'docs/troubleshooting.md': 13_000,
  ...Object.fromEntries(PRODUCT.map((folder) => [`${folder}/README.md`, 600])),
}
const MOST_WORDS_OF_ALL = 73_500

const documents = sourceFiles(/\.md$/)

t.test('documents are short', async (t) => {
  const words = new Map(documents.map(({ path, text }) => [path, text.split(/\s+/).filter(Boolean).length]))
  for (const [path, most] of Object.entries(MOST_WORDS)) {
    const has = words.get(path)
    if (has === undefined) t.fail(`${path} is missing`)
    else if (has > most) t.fail(`${path} has ${has} words: at most ${most}`)
  }
  const all = [...words.values()].reduce((sum, one) => sum + one, 0)
  t.ok(all <= MOST_WORDS_OF_ALL, `${all} words in all documents: at most ${MOST_WORDS_OF_ALL}`)
})

t.test('links and their anchors resolve', async (t) => {
  const anchors = new Map(documents.map(({ path, text }) => [path, anchorsOf(text)]))
  const others = new Set(sourceFiles(/./).flatMap(({ path }) => [path, ...foldersOf(path)]))
  let links = 0
  for (const { path, text } of documents) {
    for (const [, target = ''] of withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue
      links += 1
      const [file = '', anchor] = target.split('#')
      const to = file === '' ? path : normalize(join(dirname(path), file)).replace(/\/$/, '')
      if (!others.has(to)) t.fail(`${path}: ${target}: no such file`)
      else if (anchor !== undefined && anchors.get(to)?.has(anchor) !== true) t.fail(`${path}: ${target}: no heading`)
    }
  }
  t.ok(links > 100, `${links} links are looked up`)
})

t.test('documents that the product names are there', async (t) => {
  const paths = new Set(documents.map(({ path }) => path))
  for (const { path, text } of sourceFiles(/\.(ts|proto|ya?ml|json)$/, [...PRODUCT, 'manifests']))
    for (const [name] of text.matchAll(/\bdocs\/[\w/-]+\.md\b/g))
      if (!paths.has(name) && name !== 'docs/runbooks/NAME.md') t.fail(`${path} names ${name}, which is not there`)
})

t.test('lines have at most 120 columns, also of tables, examples and what is generated', async (t) => {
  t.ok(documents.length > 50, `${documents.length} documents are looked at`)
  for (const { path, text } of documents) {
    for (const [i, line] of text.split('\n').entries()) {
      const { length } = line
      if (length > DOCUMENT_WIDTH) t.fail(`${path}:${i + 1} has ${length} columns: wrap it, or make the table a list`)
    }
  }
})

t.test('no file has the marks of an unfinished merge', async (t) => {
  const files = sourceFiles(/\.(ts|go|md|ya?ml|json|txt|proto|sh)$/)
  t.ok(files.length > 1000, `${files.length} files are looked at`)
  for (const { path, text } of files)
    if (/^(?:<{7}|>{7}) /m.test(text)) t.fail(`${path} has the marks of an unfinished merge`)
})

t.test('files that a document names are there', async (t) => {
  const files = sourceFiles(/./).map(({ path }) => path)
  let named = 0
  // The changelog may name files that have been removed.
  for (const { path, text } of documents.filter((document) => document.path !== 'CHANGELOG.md')) {
    for (const [, name = ''] of text.matchAll(/(?<![\w./:*>-])((?:[\w.-]+\/)*[\w-][\w.-]*\.(?:ts|go|proto))\b/g)) {
      named += 1
      if (!isThere(name, path, files)) t.fail(`${path} names ${name}, which is not there`)
    }
  }
  t.ok(named > 100, `${named} names are looked up`)
})

t.test('sentences are no riddles', async (t) => {
  const texts = sourceFiles(/\.(md|ts|go|proto)$/).filter(({ path }) => path !== 'test/conventions/documents.test.ts')
  for (const { path, text } of texts) {
    const found = RIDDLES.exec(text.replaceAll(/\s+(\*|\/\/)?\s*/g, ' '))?.[0]
    if (found !== undefined) t.fail(`${path}: "${found}": say who does what`)
  }
})

/**
 * Returns whether a file exists, from the root or from the document's folder. A README may name a file of its component
 * by the end of its path.
 */
function isThere(name: string, document: string, files: readonly string[]): boolean {
  if (files.includes(name) || files.includes(join(dirname(document), name))) return true
  const [top = ''] = document.split('/')
  const isReadme = document.endsWith('/README.md')
  return files.some((file) => file.endsWith(`/${name}`) && (!isReadme || file.startsWith(`${top}/`)))
}

/** Returns the anchors that GitHub makes from the headings. */
function anchorsOf(text: string): ReadonlySet<string> {
  const found = new Map<string, number>()
  const all = [...withoutBlocks(text).matchAll(/^#{1,6} (.*)$/gm)].map(([, heading = '']) => {
    const plain = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    const slug = plain
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
      .trim()
      .replaceAll(' ', '-')
    const times = found.get(slug) ?? 0
    found.set(slug, times + 1)
    return times === 0 ? slug : `${slug}-${times}`
  })
  return new Set(all)
}

function withoutBlocks(text: string): string {
  return text.replaceAll(/^ *```[\s\S]*?^ *```/gm, '')
}

/** Removes code, which may look like a link. */
function withoutCode(text: string): string {
  return withoutBlocks(text).replaceAll(/(`+)[^`]*?\1(?!\])/g, '')
}

function foldersOf(path: string): readonly string[] {
  const parts = path.split('/')
  return parts.slice(1).map((_, i) => parts.slice(0, i + 1).join('/'))
}
