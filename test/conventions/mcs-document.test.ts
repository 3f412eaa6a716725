/** docs/mcs.md lists each requirement once, and names only existing tests. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ROOT } from '../support/source-tree.ts'

const text = readFileSync(join(ROOT, 'docs', 'mcs.md'), 'utf8')
const range = (prefix: string, last: number, width = 1): string[] =>
  Array.from({ length: last }, (_, i) => `${prefix}${String(i + 1).padStart(width, '0')}`)

t.test('every requirement has one item', async (t) => {
  const rows = [...text.matchAll(/^- \*\*([A-Z]?\d+)\*\* /gm)].map(([, number]) => number)
  const wanted = [
    ...range('', 114),
    ...range('A', 9),
    ...range('S', 14),
    ...range('P', 32),
    ...range('D', 10),
    ...range('T', 27, 2),
  ]
  t.same(rows, wanted)
})

t.test('every test that is named exists', async (t) => {
  const named = [...text.matchAll(/`([a-z/-]+\/[a-z0-9-]+): ([^`]+)`/g)]
  t.ok(named.length > 100, `${named.length} are named`)
  for (const [, file = '', name = ''] of named) {
    const path = join(ROOT, 'test', `${file}.test.ts`)
    if (!existsSync(path)) t.fail(`test/${file}.test.ts does not exist`)
    else if (!hasCase(readFileSync(path, 'utf8'), name)) t.fail(`test/${file}.test.ts has no case "${name}"`)
  }
})

/** Returns whether the source has a test whose name begins with this text. */
function hasCase(source: string, name: string): boolean {
  return ["'", '"', '`'].some((quote) => source.includes(`${quote}${name}`))
}
