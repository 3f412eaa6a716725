/** Gateways over time, one of them behind NAT: the far end fails, and leaves. */
import t from 'tap'
import { dropCounter } from '../../gateway/nft/drop-counts.ts'
import { parseCounters } from '../../kernel/nft/nft-text.ts'
import { membership, untilUp, watched, withGateways, withSites } from '../gateway/support/netns-sites.ts'
import { kernelOf, wireguardProcesses } from '../gateway/support/kernel-traces.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { BEHIND_NAT, BEHIND_ROUTER, MILANO } from '../gateway/support/two-gateways.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false

t.setTimeout(300_000)

t.test('a site behind NAT', { skip, timeout: 120_000 }, async (t) => {
  await withSites([MILANO, BEHIND_NAT], temporaryFolder(t), async (sites, internet) => {
    const [milano, tokyo] = sites
    await internet.exec('nft', ['-f', '-'], { input: BEHIND_ROUTER })
    const before = await kernelOf(tokyo.gateway)
    await withGateways(sites, async (left, right) => {
      const connection = () => left.status?.connections[0]
      t.match(connection()?.usingAddress, /^192\.0\.2\.1:\d+$/, 'seen at the address of the NAT')
      t.equal(connection()?.usingNat, true)
      t.equal(right.status?.connections[0]?.usingAddress, '192.0.2.10:4500')
      t.equal(right.status?.connections[0]?.usingNat, false)
      t.match(await pings(milano.pod, '244.2.0.5'), '1 received', 'called from outside')
      t.match(await pings(tokyo.pod, '244.0.0.5'), '1 received', 'and from inside')

      await t.test('the far end falls silent, and comes back', async (t) => {
        await internet.exec('ip', ['link', 'set', 'to-tokyo', 'down'])
        await eventually(() => left.stateOf('tokyo') === 'down', { deadlineMs: 20_000, say: 'down' })
        const routes = (): Promise<string> => milano.gateway.exec('ip', ['route', 'show', 'table', '7311'])
        await eventually(async () => !(await routes()).includes('244.2.0.0/16'), {
          deadlineMs: 20_000,
          say: 'its prefix has left the lane',
        })
        t.match(
          await pings(milano.pod, '244.2.0.5', '-W', '1'),
          'Destination Host Unreachable',
          'and callers are told at once',
        )
        // Otherwise the other end may notice only after both were seen up.
        await eventually(() => right.stateOf('milano') === 'down', { deadlineMs: 20_000, say: 'down at both ends' })
        await internet.exec('ip', ['link', 'set', 'to-tokyo', 'up'])
        await untilUp(left, 'tokyo')
        await untilUp(right, 'milano')
        t.match(await pings(milano.pod, '244.2.0.5'), '1 received')
      })

      await t.test('what does not belong on a lane does not get there', async (t) => {
        const counters = async (): Promise<ReadonlyMap<string, number>> =>
          parseCounters(await milano.gateway.exec('nft', ['list', 'counters', 'table', 'ip', 'sealane_gateway']))
        const earlier = await counters()
        t.notMatch(
          await pings(milano.gateway, '244.2.0.5', '-I', '192.0.2.10', '-W', '1'),
          '1 received',
          'a node address as source',
        )
        t.notMatch(await pings(milano.pod, '246.0.1.0', '-W', '1'), '1 received', 'a lane address from a pod')
        t.notMatch(
          await pings(milano.gateway, '192.0.2.1', '-I', '246.0.1.0', '-W', '1'),
          '1 received',
          'a lane address by another way',
        )
        const after = await counters()
        for (const reason of ['out-unknown-source', 'lane-address-outside', 'lane-address-astray'] as const) {
          const counter = dropCounter(reason)
          t.equal((after.get(counter) ?? 0) - (earlier.get(counter) ?? 0), 1, reason)
        }
      })

      await t.test('leaving takes everything along', async (t) => {
        right.put(membership('tokyo', 'leaving'))
        await eventually(() => right.left, { deadlineMs: 20_000, say: 'left' })
        t.equal(await kernelOf(tokyo.gateway), before, 'the kernel is as it was')
        t.strictSame(await wireguardProcesses(tokyo), [])
        t.strictSame(right.gone.sort(), ['Endpoint/tokyo.gw-lane0', 'Gateway/gw'])
      })
    })
    t.strictSame(await wireguardProcesses(milano), ['wireguard-go'], 'stopping leaves the tunnel')
    t.equal((await watched(internet)).inner, 0, 'in all that, the internet saw no inner address')
  })
})
