/**
 * Three brokers on an etcd of three members run in network namespaces under traffic, while faults hit them at random.
 * `npm run bench:faults` does the same for longer. broken-rounds.test.ts shows that the checker finds faults.
 */
import t from 'tap'
import { inPrivateNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { Chance } from './rounds/chance.ts'
import { FAULT_KINDS, planRounds } from './rounds/plan-rounds.ts'
import { runRounds } from './rounds/run-rounds.ts'

const ROUNDS = 6
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

const all = inPrivateNetns(t, import.meta.url, () => {
  t.test('sound brokers', { timeout: 120_000 }, async (t) => {
    const said: string[] = []
    const say = (text: string): void => void said.push(text)
    const result = await runRounds({ rounds: ROUNDS, seed: SEED, folder: temporaryFolder(t), say })
    const { violations, calls, observations, rounds } = result
    t.same(violations, [], said.join('\n'))
    t.equal(rounds, ROUNDS)
    // A round in which nothing happened would prove nothing.
    for (const what of ['token ok', 'join ok', 'join failed', 'put ok', 'remove ok', 'renew ok', 'end ok'])
      t.ok((calls[what] ?? 0) > 0, what)
    t.ok(observations > 100)
  })
})
// These rounds take longer than the default timeout of a test file.
t.setTimeout(170_000)
await all
