/**
 * The table in CONTRIBUTING.md that gives each behaviour its test names only existing tests, and stays short enough to
 * be read.
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ROOT } from '../support/source-tree.ts'

const MOST_ROWS = 30

const [, section = ''] = readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8').split('## One home for each behaviour\n')
const [table = ''] = section.split('\n## ')
const rows = table
  .split('\n')
  .filter((line) => line.startsWith('|'))
  .slice(2)
  .map((line) => line.split('|').slice(1, -1))

const namesIn = (cell: string): readonly string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name)

function isThere(name: string): boolean {
  const path = join(ROOT, 'test', name)
  return existsSync(`${path}.test.ts`) || (existsSync(path) && statSync(path).isDirectory())
}

t.test('each behaviour has a home, and names are of tests', async (t) => {
  t.ok(rows.length > 20, `${rows.length} rows`)
  t.ok(rows.length <= MOST_ROWS, `${rows.length} rows: at most ${MOST_ROWS} are read`)
  for (const [behaviour = '', home = '', smokes = ''] of rows) {
    t.ok(namesIn(home).length > 0, `${behaviour.trim()} has a home`)
    const missing = [...namesIn(home), ...namesIn(smokes)].filter((name) => !isThere(name))
    t.strictSame(missing, [], behaviour.trim())
    const twice = namesIn(smokes).filter((name) => namesIn(home).includes(name))
    t.strictSame(twice, [], `${behaviour.trim()}: a smoke is elsewhere`)
  }
})
