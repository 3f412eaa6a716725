/** Attacks after which nothing of the victim may have changed. */
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import type { LooseRecord } from './fake-broker.ts'
import { Victim } from './victim.ts'

/**
 * Checks that nothing of the victim changes after `send`, once the agent has seen all of it. `reported` is a text that
 * its log must contain.
 */
export async function unmoved(t: Test, send: (victim: Victim) => void, reported?: string): Promise<Victim> {
  const victim = await Victim.start(t)
  await victim.caughtUp()
  const [plan, holds] = [victim.plan(), victim.holds()]
  send(victim)
  await victim.caughtUp()
  t.equal(victim.plan(), plan, 'no route, no lane and no nft text')
  t.strictSame(victim.holds(), holds, 'no object and no file')
  if (reported !== undefined) {
    await eventually(() => victim.reportedOf(reported), { deadlineMs: 20_000, say: `the log says ${reported}` })
    t.pass('and it is told')
  }
  return victim
}

/** Sends records, each in a batch of its own. */
export function puts(...records: readonly LooseRecord[]) {
  return ({ broker }: Victim): void => {
    for (const record of records) broker.put(record)
  }
}

/** Runs unmoved() for each value, with a victim of its own. */
export async function each<T>(
  t: Test,
  values: readonly T[],
  send: (value: T) => (victim: Victim) => void,
): Promise<void> {
  for (const value of values)
    await t.test(JSON.stringify(value), async (t) => {
      await unmoved(t, send(value))
    })
}
