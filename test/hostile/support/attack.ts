/**
 * Runs a row of the table of attacks as a test. Only attacks with a row can run, and test/hostile/README.md lists all
 * of them.
 */
import t, { type Test } from 'tap'
import { ATTACKS } from '../table/all.ts'

/** Runs `body` as the test of the row `id`, for at most 120 s. Throws if there is no such row. */
export async function attack(id: string, body: (t: Test) => Promise<void>): Promise<void> {
  const row = ATTACKS.flatMap(({ rows }) => rows).find((one) => one.id === id)
  if (row === undefined) throw new Error(`test/hostile/table has no row ${JSON.stringify(id)}`)
  await t.test(`${id}: ${row.tried} ${row.holds}`, { timeout: 120_000 }, body)
}
