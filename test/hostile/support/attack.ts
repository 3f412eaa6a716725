/** A row of the table of attacks as a test: what has no row has no test, and test/hostile/README.md lists both. */
import t, { type Test } from 'tap'
import { ATTACKS } from '../table/all.ts'

/** Runs `body` as the test of the row `id`. Throws where there is no such row. It may take 120 s at most. */
export async function attack(id: string, body: (t: Test) => Promise<void>): Promise<void> {
  const row = ATTACKS.flatMap(({ rows }) => rows).find((one) => one.id === id)
  if (row === undefined) throw new Error(`test/hostile/table has no row ${JSON.stringify(id)}`)
  await t.test(`${id}: ${row.tried} ${row.holds}`, { timeout: 120_000 }, body)
}
