/**
 * Two dual-stack sites whose lanes run over IPv4. Their IPv4 pod CIDRs overlap and are translated; IPv6 is not
 * translated, and passes the same policy.
 */
import t from 'tap'
import { parseCounters } from '../../kernel/nft/nft-text.ts'
import { countArrivals } from '../gateway/support/arrivals.ts'
import { kernelOf, wireguardProcesses } from '../gateway/support/kernel-traces.ts'
import { type Site, introduce, membership, watched, withGateways, withSites } from '../gateway/support/netns-sites.ts'
import { POD_PROGRAMS, inPod, pings } from '../gateway/support/pod-programs.ts'
import {
  DUAL_STACK_MILANO as MILANO,
  DUAL_STACK_PARIS as PARIS,
  gatewayOfLane,
  withManyIn,
} from '../gateway/support/two-gateways.ts'
import { withWays } from '../support/route-ways.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(180_000 * SLOWNESS)

/** A rule like kube-proxy's: without a rule that needs connection tracking, the kernel tracks nothing. */
const TRACK = `table ip6 proxy {
  chain forward { type filter hook forward priority 10; ct state established counter; }
}`

const BLOCK_LANE_1 = `table ip block {
  chain in { type filter hook input priority -10; udp dport 4501 drop; }
  chain out { type filter hook output priority -10; udp sport 4501 drop; }
}`

/** The flows are so many that chance puts them all on one of two links once in 500,000,000,000 times. */
const FLOWS = 40

async function dropsOf({ gateway }: Site): Promise<[string, number][]> {
  const text = await gateway.exec('nft', ['list', 'counters', 'table', 'ip6', 'sealane_gateway'])
  return [...parseCounters(text)].filter(([, packets]) => packets > 0)
}

async function serve(ns: Netns): Promise<() => void> {
  const server = ns.spawn(process.execPath, ['-e', POD_PROGRAMS.server, '::'])
  await new Promise((resolve) => server.stdout?.once('data', resolve))
  return () => server.kill()
}

t.test('dual-stack sites', { skip, timeout: 120_000 * SLOWNESS }, async (t) => {
  await withSites([MILANO, PARIS], temporaryFolder(t), async (sites, internet) => {
    const [milano, paris] = sites
    const before = await kernelOf(paris.gateway)
    t.match(before, 'net.ipv6.conf.all.forwarding = 0')
    await milano.gateway.exec('nft', ['-f', '-'], { input: TRACK })
    // Some machines disable IPv6 on new devices; the devices of pods get it from their CNI.
    await paris.gateway.exec('sysctl', ['-qw', 'net.ipv6.conf.default.disable_ipv6=1'])
    await withGateways(sites, async (_left, right) => {
      await t.test('ping, every pair of nodes', async (t) => {
        for (const [say, from] of [
          ['pod', milano.pod],
          ['far pod', milano.far],
          ['node', milano.gateway],
        ] as const) {
          t.match(await pings(from, 'fd42:2::5'), '1 received', `${say} to pod`)
          t.match(await pings(from, 'fd42:2:0:1::5'), '1 received', `${say} to far pod`)
          t.match(await pings(from, 'fd42:2::1'), '1 received', `${say} to node`)
        }
        t.match(await pings(paris.pod, 'fd42:1::5'), '1 received', 'and back')
        t.match(await pings(milano.pod, '244.1.0.5'), '1 received', 'and IPv4')
      })

      await t.test('TCP both ways; the server sees the address of the caller', async (t) => {
        const stops = await Promise.all([paris.pod, paris.far, milano.far].map((ns) => serve(ns)))
        t.equal(await inPod(milano.pod, 'tcp', 'fd42:2::5'), 'fd42:1::5 200000', 'TCP, 200,000 bytes, to pod')
        t.equal(await inPod(milano.far, 'tcp', 'fd42:2:0:1::5'), 'fd42:1:0:1::5 200000', 'far pod to far pod')
        t.equal(await inPod(paris.pod, 'tcp', 'fd42:1:0:1::5'), 'fd42:2::5 200000', 'and back')
        for (const stop of stops) stop()
      })

      await t.test('errors come back to the socket that they are about', async (t) => {
        t.equal(await inPod(milano.pod, 'closed', 'fd42:2::5'), 'ECONNREFUSED', 'port unreachable from a pod')
        t.equal(await inPod(milano.far, 'closed', 'fd42:2:0:1::5'), 'ECONNREFUSED', 'from far pod to far pod')
        t.match(
          await pings(milano.pod, 'fd42:2::5', '-t', '2'),
          /From fd42:2:\S*:1 .*Time exceeded: Hop limit/,
          'hop limit',
        )
        t.match(
          await pings(milano.pod, 'fd42:2::99'),
          /From fd42:2:\S*:1 .*Destination unreachable: Address unreachable/,
          'no such pod',
        )
      })

      await t.test('path MTU: of the lane, and of a narrow place behind the other gateway', async (t) => {
        t.match(await pings(milano.pod, 'fd42:2::5', '-M', 'do', '-s', '1392'), '1 received', '1,440 bytes fit')
        t.match(await pings(milano.pod, 'fd42:2::5', '-M', 'do', '-s', '1393'), /mtu[:=] ?1440/, '1,441 do not')
        // The sender fragments the datagram once it has the ICMP error. It learns the path MTU of the way back by the
        // first answer.
        const stopUdp = await serve(paris.pod)
        await inPod(milano.pod, 'udp', 'fd42:2::5', '3000')
        t.equal(await inPod(milano.pod, 'udp', 'fd42:2::5', '3000'), 'fd42:1::5 3000', 'UDP, 3,000 bytes')
        stopUdp()
        await paris.gateway.exec('ip', ['link', 'set', 'sealane-vx', 'mtu', '1300'])
        t.match(
          await pings(milano.far, 'fd42:2:0:1::5', '-M', 'do', '-s', '1350'),
          /From fd42:2:\S*:1 .*Packet too big: mtu=1300/,
          'told by the other gateway',
        )
        const stop = await serve(paris.far)
        t.equal(await inPod(milano.far, 'tcp', 'fd42:2:0:1::5'), 'fd42:1:0:1::5 200000', 'TCP goes through it')
        stop()
      })

      await t.test('nothing is dropped as unfit, and passing connections are not tracked', async (t) => {
        for (const site of sites) t.strictSame(await dropsOf(site), [], site.init.cluster.spec.id)
        const tracked = await milano.gateway.exec('conntrack', ['-L', '-f', 'ipv6'])
        t.notMatch(tracked, 'fd42:1:0:1::5', 'far pods are not')
        t.match(tracked, /src=fd42:1::5 dst=fd42:2::5/, 'own pods are')
      })

      await t.test('what does not belong on a lane does not get there', async (t) => {
        await milano.gateway.exec('ip', ['address', 'add', 'fd77::1/128', 'dev', 'lo'])
        t.match(await pings(milano.gateway, 'fd42:2::5', '-I', 'fd77::1', '-W', '1'), '0 received', 'not of a pod')
        t.strictSame(await dropsOf(milano), [['dropped-out-unknown-source', 1]])
        await milano.gateway.exec('ip', ['route', 'add', 'fd42:9::/48', 'dev', 'sealane0', 'table', '7311'])
        t.match(await pings(milano.pod, 'fd42:9::5', '-W', '1'), '0 received', 'for a third cluster')
        t.strictSame(await dropsOf(milano), [
          ['dropped-out-unknown-destination', 1],
          ['dropped-out-unknown-source', 1],
        ])
      })

      const seen = await watched(internet)
      t.equal(seen.inner, 0, 'the internet saw no inner address')
      t.equal(seen.other, 0, 'and nothing but the tunnel')

      await t.test('leaving takes everything along', async (t) => {
        t.match(
          await kernelOf(paris.gateway),
          /fd42:1::\/48 (nhid \d+|dev sealane0) table 7311 proto 173 src fd42:2:\S*:1 metric/,
        )
        right.put(membership('paris', 'leaving'))
        await eventually(() => right.left, { deadlineMs: 10_000, say: 'left' })
        t.equal(await kernelOf(paris.gateway), before, 'the kernel is as it was')
        t.strictSame(await wireguardProcesses(paris), [])
      })
    })
  })
})

/**
 * Returns a function that sends this many flows from pod to pod, and returns how many of them arrived at each gateway
 * of the other site.
 */
async function flowsByLink(from: Site, to: readonly Site[]): Promise<() => Promise<number[]>> {
  const match = `iifname sealane0 ip6 daddr fd42:2::5 udp dport 8080-${8079 + FLOWS}`
  const arrived = await Promise.all(to.map(({ gateway }) => countArrivals(gateway, 'ip6', { sent: match })))
  const all = async (): Promise<number[]> => (await Promise.all(arrived.map((read) => read()))).flat()
  return async () => {
    const before = await all()
    await inPod(from.pod, 'datagrams', 'fd42:2::5', String(FLOWS))
    return eventually(async () => {
      const counts = (await all()).map((packets, i) => packets - (before[i] ?? NaN))
      return counts.reduce((sum, count) => sum + count) === FLOWS ? counts : undefined
    })
  }
}

t.test('links to two gateways carry IPv6 together, and one alone', { skip, timeout: 60_000 * SLOWNESS }, async (t) => {
  const inits = [MILANO, PARIS, gatewayOfLane(PARIS, 1)]
  await withManyIn(temporaryFolder(t), inits, async ([milano, ...paris]) => {
    if (milano === undefined) throw new Error('milano runs')
    for (const one of paris) introduce(milano, one)
    const { gateway, pod } = milano.site
    const routes = async ({ site } = milano): Promise<string> =>
      withWays(
        await site.gateway.exec('ip', ['-6', 'route', 'show', 'table', '7311']),
        await site.gateway.exec('ip', ['nexthop', 'show']),
      )
    // Both ends are checked, because the answers must have left the link too.
    const over = async (...lanes: number[]): Promise<boolean> => {
      const [there, ...back] = await Promise.all([milano, ...paris].map(routes))
      return back.every(
        (text, lane) =>
          text.includes('sealane0') === lanes.includes(lane) &&
          there?.includes(`sealane${lane}`) === lanes.includes(lane),
      )
    }
    await eventually(() => over(0, 1), { deadlineMs: 20_000, say: 'both links' })
    t.match(await routes(), /nexthop via fe80::1 dev sealane0 .*onlink/)
    const flows = await flowsByLink(
      milano.site,
      paris.map(({ site }) => site),
    )
    const sharedOut = async (say: string): Promise<void> => {
      const counts = await flows()
      t.ok(Math.min(...counts) > 0, `${say}: ${counts.join(' and ')} of ${FLOWS} flows`)
    }
    const everyone = ['fd42:2::1', 'fd42:2::5', 'fd42:2:0:1::1', 'fd42:2:0:1::5']
    for (const to of everyone) t.match(await pings(pod, to), '1 received', to)
    await sharedOut('over both')
    await gateway.exec('nft', ['-f', '-'], { input: BLOCK_LANE_1 })
    await eventually(() => over(0), { deadlineMs: 10_000, say: 'the link to gateway 1 is down' })
    for (const to of everyone) t.match(await pings(pod, to), '1 received', `${to}, over one link`)
    t.strictSame(await flows(), [FLOWS, 0], 'all flows over the one')
    await gateway.exec('nft', ['delete', 'table', 'ip', 'block'])
    await eventually(() => over(0, 1), { deadlineMs: 20_000, say: 'both links again' })
    for (const to of everyone) t.match(await pings(pod, to), '1 received', `${to}, over both again`)
    await sharedOut('over both again')
  })
})
