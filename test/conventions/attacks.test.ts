/** Every attack in the table is tried in exactly one test, and the document lists it. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { attacksDocument, triedIn } from '../../scripts/documents/attacks-document.ts'
import { ATTACKS } from '../hostile/table/all.ts'
import { ROOT } from '../support/source-tree.ts'

const rows = ATTACKS.flatMap(({ rows }) => rows)

t.test('rows are whole, and their ids are their own', async (t) => {
  t.ok(rows.length > 0, 'there are attacks')
  t.equal(new Set(rows.map(({ id }) => id)).size, rows.length)
  for (const { id, tried, holds, against } of rows) {
    t.match(id, /^[a-z0-9]+(-[a-z0-9]+)*$/, id)
    for (const text of [tried, holds]) t.match(text, /^\S.*\.$/s, `${id}: a sentence: ${text}`)
    t.ok(against.length > 10, `${id}: what stands against it is named`)
  }
})

t.test('each is tried once', async (t) => {
  const tried = [...triedIn().values()].flat().sort()
  t.strictSame(tried, rows.map(({ id }) => id).sort())
})

t.test('test/hostile/README.md is what npm run docs:attacks writes', async (t) => {
  t.equal(readFileSync(join(ROOT, 'test', 'hostile', 'README.md'), 'utf8'), attacksDocument())
})
