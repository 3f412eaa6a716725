/**
 * Three brokers on an etcd of three members, in network namespaces, under traffic, while parts of it break by chance. What
 * holds of sound brokers does not hold of broken ones, and the same checker says so. `npm run bench:faults` does the same
 * for longer.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { inPrivateNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { Chance } from './rounds/chance.ts'
import { FAULT_KINDS, planRounds } from './rounds/plan-rounds.ts'
import { type RoundsInit, type RoundsResult, runRounds } from './rounds/run-rounds.ts'

const ROUNDS = 7
const SEED = 20261125

t.test('the plan of rounds', (t) => {
  const plan = planRounds(100, new Chance(SEED))
  t.same(plan, planRounds(100, new Chance(SEED)), 'the same for the same seed')
  t.notSame(plan, planRounds(100, new Chance(SEED + 1)))
  const counts = FAULT_KINDS.map((kind) => plan.flat().filter((fault) => fault.kind === kind).length)
  t.ok(Math.max(...counts) - Math.min(...counts) <= 1, 'each kind as often as the others')
  t.ok(Math.min(...counts) >= 5)
  t.end()
})

await inPrivateNetns(t, import.meta.url, () => {
  const run = async (t: Test, init: Partial<RoundsInit>): Promise<RoundsResult> => {
    const folder = temporaryFolder(t)
    t.teardown(() => spawnSync('umount', ['-l', ...DISKS.map((name) => join(folder, name))]))
    const said: string[] = []
    const say = (text: string): void => void said.push(text)
    const result = await runRounds({ rounds: ROUNDS, seed: SEED, folder, say, ...init })
    t.comment(JSON.stringify({ ...result, violations: result.violations.slice(0, 5), said }, undefined, 1))
    return result
  }

  t.test('sound brokers', { timeout: 120_000 }, async (t) => {
    const { violations, calls, observations, rounds } = await run(t, {})
    t.same(violations, [])
    t.equal(rounds, ROUNDS)
    // A round that does nothing shows nothing.
    for (const what of ['token ok', 'join ok', 'join failed', 'put ok', 'remove ok', 'renew ok', 'end ok'])
      t.ok((calls[what] ?? 0) > 0, what)
    t.ok(observations > 100)
  })
})

const DISKS = ['e0', 'e1', 'e2', 'b0', 'b1', 'b2']
