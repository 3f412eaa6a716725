/**
 * The network between two sites carries smaller packets than the networks of the gateways, and no router reports it:
 * connections go on, pods get ICMP errors, and everything recovers once the network does. bench/paths.ts measures how
 * long that takes.
 */
import t from 'tap'
import type { ConnectionStatus, Gateway } from '../../model/objects.ts'
import { narrow, widen } from '../failover/path-faults.ts'
import { Stream } from '../failover/receiver.ts'
import { POD_ADDRESSES, type SiteName, type TwoSites, withTwoSites } from '../failover/sites.ts'
import { introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { MILANO, PARIS, type Running, idOf, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(390_000 * SLOWNESS)

/** The lane over a path of 1,280 octets has 60 fewer for WireGuard, in steps of 16. */
const NARROW = 1280
const NARROW_LANE = 1216
const WIDE_LANE = 1440
const DEADLINE_MS = 40_000
/** A larger size whose probe was lost on a busy machine is tried again after 20 s, and then after 40 s. */
const WIDE_AGAIN_MS = 150_000
/** With 28 octets of headers this is more than a lane carries over the narrow path, and less than over the wide one. */
const LARGE_PING = ['-s', '1372']

t.test('the path becomes narrow while a connection sends', { skip, timeout: 360_000 * SLOWNESS }, (t) =>
  withTwoSites(temporaryFolder(t), async (sites) => {
    const { internet, nodes, pods } = sites
    await links(sites, 'milano', { mtu: WIDE_LANE, receiveMtu: WIDE_LANE }, 'at first')
    t.match(await pings(pods.milano, POD_ADDRESSES.paris, '-M', 'do', ...LARGE_PING), ' 1 received')
    const streams = [
      await Stream.start('tcp', pods.milano, pods.paris, POD_ADDRESSES.paris),
      await Stream.start('tcp', pods.paris, pods.milano, POD_ADDRESSES.milano),
    ]
    await narrow(internet, nodes, NARROW)
    for (const site of ['milano', 'paris'] as const) {
      await links(sites, site, { mtu: NARROW_LANE, receiveMtu: NARROW_LANE }, 'narrow')
      t.match(connections(sites, site)[0]?.message, /^PathMtuReduced: packets larger than 1216 octets/)
    }
    await goOn(streams, 'over the narrow path')

    t.match(await heardBy(pods.milano, POD_ADDRESSES.paris), /mtu ?= ?1216/, 'who sends more is told how much')
    t.match(await pings(pods.milano, POD_ADDRESSES.paris, '-M', 'dont', ...LARGE_PING), ' 1 received', 'in fragments')

    await widen(internet, nodes)
    await links(sites, 'milano', { mtu: WIDE_LANE, receiveMtu: WIDE_LANE }, 'wide again', WIDE_AGAIN_MS)
    await eventually(() => connections(sites, 'milano').every(({ message }) => message === ''), { say: 'all is well' })
    await goOn(streams, 'over the wide path')
    await Promise.all(streams.map((stream) => stream.stop()))
  }),
)

t.test('one direction is narrow: one end follows, and its pods are told', { skip, timeout: 120_000 * SLOWNESS }, (t) =>
  withTwo(t, [MILANO, PARIS], async (milano, paris, internet) => {
    introduce(milano, paris)
    await msUntilUp(milano, paris)
    await narrow(internet, [{ network: '198.51.100', port: 'to-paris' }], NARROW)
    const sizes = (from: Running, to: Running): string | undefined =>
      from.process.status?.connections
        .filter(({ cluster }) => cluster === idOf(to))
        .map(({ mtu, receiveMtu }) => `${mtu}/${receiveMtu}`)
        .join()
    await eventually(() => sizes(milano, paris) === '1216/1440' && sizes(paris, milano) === '1440/1216', {
      deadlineMs: DEADLINE_MS,
      say: 'each end knows both directions',
    })
    // One pod is on the gateway's node, and one on another node. Their addresses are also those of pods of paris.
    for (const pod of [milano.site.pod, milano.site.far]) {
      t.match(await heardBy(pod, '244.1.1.5'), /mtu ?= ?1216/, 'by the gateway')
      t.match(await pings(pod, '244.1.1.5', '-M', 'dont', ...LARGE_PING), ' 1 received', 'in fragments')
    }
  }),
)

/** The ICMP error that a pod gets that sends a packet that is too long. */
function heardBy(pod: Netns, to: string): Promise<string> {
  let heard = ''
  return eventually(
    async () => {
      heard = await pings(pod, to, '-M', 'do', '-W', '1', ...LARGE_PING)
      return /mtu ?=/.test(heard) && heard
    },
    { deadlineMs: DEADLINE_MS, say: 'the pod is told' },
  ).catch((error: unknown) => `${String(error)}: ${heard}`)
}

async function links(
  sites: TwoSites,
  site: SiteName,
  want: Pick<ConnectionStatus, 'mtu' | 'receiveMtu'>,
  say: string,
  deadlineMs = DEADLINE_MS,
): Promise<void> {
  const seen = () => connections(sites, site).map(({ mtu, receiveMtu }) => `${mtu}/${receiveMtu}`)
  const wanted = Array.from({ length: 4 }, () => `${want.mtu}/${want.receiveMtu}`).join(' ')
  await eventually(() => seen().join(' ') === wanted, {
    deadlineMs,
    say: `links of ${site} ${say}`,
  }).catch((error: unknown) => {
    throw new Error(`${String(error)}: ${seen().join(' ')} instead of ${wanted} ${sites.errors()}`)
  })
}

function connections({ gateways }: TwoSites, site: SiteName): readonly ConnectionStatus[] {
  const objects = gateways(site).map(({ process, name }) => process?.get('Gateway', name) as Gateway | undefined)
  return objects.flatMap((gateway) => gateway?.status?.connections ?? [])
}

/** Checks that each stream still receives data that is sent from now on. */
async function goOn(streams: readonly Stream[], say: string): Promise<void> {
  await Promise.all(streams.map((stream) => stream.received()))
  const isFlowing = async (stream: Stream): Promise<boolean> => {
    const { bytes, silentMs } = await stream.received()
    return bytes > 100_000 && silentMs < 500
  }
  for (const stream of streams)
    await eventually(() => isFlowing(stream), { deadlineMs: DEADLINE_MS, intervalMs: 500, say: `a connection ${say}` })
}
