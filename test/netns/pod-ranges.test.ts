/** The ranges of pods on nodes as Calico sets them up (test/routeagent/support/calico-sites.ts). */
import t from 'tap'
import { inPod } from '../gateway/support/pod-programs.ts'
import { ip, reported, withCalicoSites } from '../routeagent/support/calico-sites.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

t.test('nodes whose pods stand in no Node', { skip, timeout: 90_000 * SLOWNESS }, async (t) => {
  await withCalicoSites(t, async ({ gw, gwPod, workerPod, parisPod, gwProcess, workerProcess }) => {
    t.strictSame(reported(gwProcess, 'gw')?.podRanges, ['10.42.5.0/26'])
    t.strictSame(reported(workerProcess, 'worker')?.podRanges, ['10.42.6.0/26'])
    const answers = (from: Netns, to: string, want: string, say: string): Promise<unknown> =>
      eventually(async () => (await inPod(from, 'tcp', to)) === want, { deadlineMs: 30_000, say })
    const bytes = (source: string): string => `${source} 200000`
    await answers(workerPod, '244.1.8.7', bytes('244.0.6.7'), 'from the worker, with its source')
    await answers(parisPod, '244.0.6.7', bytes('244.1.8.7'), 'to a pod on the worker')
    await answers(parisPod, '244.0.5.7', bytes('244.1.8.7'), 'to a pod on the gateway node itself')
    await answers(gwPod, '245.0.0.7', bytes('244.0.5.7'), 'clusterset IP from a pod on the gateway node')
    await answers(workerPod, '245.0.0.7', bytes('244.0.6.7'), 'clusterset IP from a pod on the worker')

    await t.test("a pod with an address out of the other node's block", async (t) => {
      await ip(gwPod, 'address add 10.42.6.9/32 dev eth0')
      await ip(gw, 'route add 10.42.6.9/32 dev cali0 scope link')
      await eventually(() => reported(gwProcess, 'gw')?.podRanges?.includes('10.42.6.9/32'), {
        say: 'its range is told',
      })
      await eventually(async () => (await ip(gw, 'route show table 7310')).includes('throw 10.42.6.9'))
      await answers(parisPod, '244.0.6.9', bytes('244.1.8.7'), 'it is reached')
      await answers(parisPod, '244.0.6.7', bytes('244.1.8.7'), 'and so is its neighbour by number')
      t.strictSame(reported(workerProcess, 'worker')?.podRanges, ['10.42.6.0/26'], 'which stays with the other node')
    })
  })
})
