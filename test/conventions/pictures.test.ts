/** docs/pictures is what `npm run docs:pictures` writes; no picture and no output of a command is made by hand. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { explainExample, wrapTable } from '../../scripts/documents/explain-example.ts'
import { ROOT } from '../support/source-tree.ts'

const PICTURES = join(ROOT, 'docs', 'pictures')

t.test('the output of explain is that of a run', async (t) => {
  const written = readFileSync(join(PICTURES, 'explain.txt'), 'utf8')
  t.equal(await explainExample(), written, 'run: npm run docs:pictures')
  const blocks = readFileSync(join(ROOT, 'README.md'), 'utf8').matchAll(/^```\n(\$ sealane explain [\s\S]*?)^```$/gm)
  for (const [, shown] of blocks) t.equal(shown, written, 'README.md shows that of docs/pictures/explain.txt')
})

t.test('long lines of a table go on below its last column', async (t) => {
  const text =
    'a text that is too long\n\nSTEP  REASON  MESSAGE\n   1  -       some words more\n\n  1: a note of one line\n'
  t.equal(
    wrapTable(text, 22),
    [
      ...['a text that is too', '  long', '', 'STEP  REASON  MESSAGE', '   1  -       some', '              words'],
      ...['              more', '', '  1: a note of one', '  line', ''],
    ].join('\n'),
  )
  t.equal(wrapTable(`${'x'.repeat(40)}\n`, 22), `${'x'.repeat(40)}\n`, 'a long word stays whole')
})

t.test('the picture of the page is one, and small', async (t) => {
  const png = readFileSync(join(PICTURES, 'console.png'))
  t.equal(png.subarray(1, 4).toString(), 'PNG')
  t.equal(png.readUInt32BE(16), 1280, 'pixels wide')
  t.ok(png.length > 20_000 && png.length < 200_000, `${png.length} bytes`)
})
