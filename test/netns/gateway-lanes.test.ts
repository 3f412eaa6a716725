/**
 * Two sites with the same pod CIDR, real tunnels and real packets: the packets of a pod arrive, a pod gets the ICMP
 * error for what goes wrong on the way, and the internet between them sees only the tunnel.
 */
import t from 'tap'
import { dropCounter } from '../../gateway/nft/drop-counts.ts'
import { parseCounters } from '../../kernel/nft/nft-text.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Site, watched, withGateways, withSites } from '../gateway/support/netns-sites.ts'
import { POD_PROGRAMS, inPod, pings } from '../gateway/support/pod-programs.ts'
import { MILANO, PARIS } from '../gateway/support/two-gateways.ts'
import { type Netns, netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false

t.setTimeout(150_000 * SLOWNESS)

const ASTRAY = dropCounter('lane-address-astray')

async function countersOf({ gateway }: Site): Promise<ReadonlyMap<string, number>> {
  return parseCounters(await gateway.exec('nft', ['list', 'counters', 'table', 'ip', 'sealane_gateway']))
}

t.test('overlapping sites', { skip, timeout: 120_000 * SLOWNESS }, async (t) => {
  await withSites([MILANO, PARIS], temporaryFolder(t), async (sites, internet) => {
    await withGateways(sites, async () => {
      const [milano, paris] = sites
      // Before a lane has its routes, packets from the gateway's own address have nowhere to go, so a few may be
      // dropped.
      const atStart = new Map<string, number>()
      for (const site of sites) atStart.set(site.init.cluster.spec.id, (await countersOf(site)).get(ASTRAY) ?? 0)
      await t.test('ping by global address, every pair of nodes', async (t) => {
        for (const [say, from] of [
          ['pod', milano.pod],
          ['far pod', milano.far],
          ['node', milano.gateway],
        ] as const) {
          t.match(await pings(from, '244.1.0.5'), '1 received', `${say} to pod`)
          t.match(await pings(from, '244.1.1.5'), '1 received', `${say} to far pod`)
          t.match(await pings(from, '244.1.0.1'), '1 received', `${say} to node`)
        }
        t.match(await pings(paris.pod, '244.0.0.5'), '1 received', 'and back')
      })

      await t.test('TCP and UDP; the server sees the global address of the caller', async (t) => {
        for (const [say, server, address] of [
          ['pod', paris.pod, '244.1.0.5'],
          ['far pod', paris.far, '244.1.1.5'],
        ] as const) {
          const running = server.spawn(process.execPath, ['-e', POD_PROGRAMS.server])
          await new Promise((resolve) => running.stdout?.once('data', resolve))
          t.equal(await inPod(milano.pod, 'tcp', address), '244.0.0.5 200000', `TCP, 200,000 bytes, to ${say}`)
          t.equal(await inPod(milano.far, 'tcp', address), '244.0.1.5 200000', `TCP from the far pod to ${say}`)
          t.equal(await inPod(milano.pod, 'udp', address, '3000'), '244.0.0.5 3000', `UDP, 3,000 bytes, to ${say}`)
          running.kill()
        }
      })

      await t.test('TCP out of a user-space lane goes on joined; the kernel joins by itself', async (t) => {
        const exists = async (path: string): Promise<boolean> =>
          (await paris.gateway.tryExec('test', ['-e', `/sys/class/net/${path}`])).code === 0
        if (!(await exists('sealane0/tun_flags'))) {
          t.notOk(await exists('sealane0-rx'), 'a lane of the kernel has no cable')
          return
        }
        const counted = async (): Promise<readonly [came: number, went: number]> => [
          await packets(paris.gateway, 'sealane0-rx', 'rx'),
          await packets(paris.gateway, 'sealane-vx', 'tx'),
        ]
        const server = paris.far.spawn(process.execPath, ['-e', POD_PROGRAMS.server])
        await new Promise((resolve) => server.stdout?.once('data', resolve))
        // A busy machine may forward segments one by one, and then few can be joined.
        const [came, went] = await eventually(
          async () => {
            const before = await counted()
            t.equal(await inPod(milano.far, 'tcp', '244.1.1.5'), '244.0.1.5 200000')
            const [came = 0, went = 0] = (await counted()).map((count, i) => count - (before[i] ?? 0))
            return went * 2 < came && ([came, went] as const)
          },
          { deadlineMs: 20_000, say: 'no more than half as many packets go on as segments came' },
        )
        server.kill()
        t.ok(came >= 200_000 / 1440, `${came} segments came over the cable and went on as ${went} packets`)
      })

      await t.test('errors come back to the socket that they are about', async (t) => {
        t.equal(await inPod(milano.pod, 'closed', '244.1.0.5'), 'ECONNREFUSED', 'port unreachable from a pod')
        t.equal(await inPod(milano.pod, 'closed', '244.1.1.5'), 'ECONNREFUSED', 'from a far pod')
        t.equal(await inPod(milano.far, 'closed', '244.1.1.5'), 'ECONNREFUSED', 'from far pod to far pod')
        t.equal(await inPod(milano.pod, 'closed', '244.1.0.1'), 'ECONNREFUSED', 'from the other node itself')
        t.equal(await inPod(milano.gateway, 'closed', '244.1.0.5'), 'ECONNREFUSED', 'to this node')
        t.match(
          await pings(milano.pod, '244.1.0.5', '-t', '2'),
          /From 244\.1\.0\.1 .*Time to live exceeded/,
          'TTL exceeded',
        )
        t.match(
          await pings(milano.pod, '244.1.0.99'),
          /From 244\.1\.0\.1 .*Destination Host Unreachable/,
          'no such pod',
        )
      })

      await t.test('path MTU: of the lane, and of a narrow place behind the other gateway', async (t) => {
        t.match(await pings(milano.pod, '244.1.0.5', '-M', 'do', '-s', '1412'), '1 received', '1,440 bytes fit')
        t.match(await pings(milano.pod, '244.1.0.5', '-M', 'do', '-s', '1413'), /mtu = 1440/, '1,441 do not')
        await paris.gateway.exec('ip', ['link', 'set', 'sealane-vx', 'mtu', '1200'])
        t.match(
          await pings(milano.far, '244.1.1.5', '-M', 'do', '-s', '1300'),
          /From 244\.1\.\d\.1 .*mtu = 1200/,
          'told by the other gateway',
        )
        t.match(
          await pings(milano.far, '244.1.1.5', '-M', 'do', '-s', '1300'),
          /message too long, mtu=1200/,
          'and believed',
        )
      })

      await t.test('nothing is dropped as unfit, nothing is translated for the wrong ones', async (t) => {
        for (const site of sites) {
          const { id } = site.init.cluster.spec
          const dropped = [...(await countersOf(site))].map(
            ([name, packets]) =>
              [name, name === ASTRAY ? Math.abs(packets - (atStart.get(id) ?? 0)) : packets] as const,
          )
          t.strictSame(
            dropped.filter(([, packets]) => packets > 0),
            // This is the datagram to a port of the node itself, above.
            id === 'paris' ? [['dropped-host-service', 1]] : [],
            id,
          )
        }
      })

      await t.test('passing connections of other nodes are not tracked here', async (t) => {
        const tracked = await milano.gateway.exec('conntrack', ['-L'])
        t.notMatch(tracked, '10.42.1.5', 'far pods are not')
        t.match(tracked, /src=10\.42\.0\.5 dst=244\.1\.0\.5/, 'own pods are, by their own address')
      })

      const seen = await watched(internet)
      t.equal(seen.inner, 0, 'the internet saw no inner address')
      t.equal(seen.other, 0, 'and nothing but the tunnel')
      t.ok(seen.tunnel > 100, `tunnel packets: ${seen.tunnel}`)
    })
  })
})

async function packets(node: Netns, device: string, way: 'rx' | 'tx'): Promise<number> {
  return Number(await node.exec('cat', [`/sys/class/net/${device}/statistics/${way}_packets`]))
}
