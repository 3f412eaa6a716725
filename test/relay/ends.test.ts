/** Who is connected to a relay, and what that counts for. */
import t from 'tap'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { DEFAULT_END_LIMITS, Ends } from '../../relay/ends/ends.ts'

t.test('a gateway that comes again as one of another member leaves the former one its place', async (t) => {
  const ends = new Ends(new FakeClock(), { ...DEFAULT_END_LIMITS, endsOfMember: 1 })
  const replaced: string[] = []
  const enter = (cluster: string, name: string) => {
    const port = {
      ...{ deliver: () => undefined, present: () => undefined },
      replaced: () => void replaced.push(`${cluster} ${name}`),
    }
    return ends.enter({ clusterset: 'demo', cluster, name }, port)
  }
  const leave = (end: ReturnType<typeof enter>): void => {
    if (typeof end !== 'string') end.leave()
  }
  const [before, now] = [enter('paris', 'gw'), enter('oslo', 'gw')]
  t.same([replaced, ends.count], [['paris gw'], 1])
  t.equal(enter('oslo', 'gw2'), 'memberFull')
  leave(before)
  leave(now)
  t.equal(ends.count, 0)
  for (const cluster of ['oslo', 'paris']) t.not(enter(cluster, `${cluster} gw3`), 'memberFull', cluster)
})
