/** A link of real gateways without traffic sleeps at both ends, and a ping wakes both. */
import t from 'tap'
import { introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { MILANO, PARIS, type Running, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false
t.setTimeout(120_000)

const isAsleep = ({ process }: Running): boolean => {
  const [link] = process.status?.connections ?? []
  return link?.state === 'up' && link.asleep === true
}

t.test('it sleeps, and wakes by a ping', { skip, timeout: 60_000 }, (t) =>
  withTwo(
    t,
    [
      { ...MILANO, sleepAfterMs: 1500 },
      { ...PARIS, sleepAfterMs: 2500 },
    ],
    async (milano, paris) => {
      introduce(milano, paris)
      await msUntilUp(milano, paris, 60_000)
      const ends = [milano, paris]
      await eventually(() => ends.every(isAsleep), { deadlineMs: 20_000, say: 'both ends sleep' })
      t.match(await pings(milano.site.pod, '244.1.0.5'), '1 received', 'no packet is lost')
      // One ping is not enough: they may sleep again before the next status is written.
      const areAwake = async (): Promise<boolean> => {
        await pings(milano.site.pod, '244.1.0.5')
        return !ends.some(isAsleep)
      }
      await eventually(areAwake, { deadlineMs: 20_000, say: 'both ends are awake' })
      t.strictSame(
        ends.map(({ process }) => process.status?.connections[0]?.state),
        ['up', 'up'],
      )
    },
  ),
)
