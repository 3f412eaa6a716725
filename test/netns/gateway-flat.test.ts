/**
 * Two sites that are not translated, whose gateways have addresses inside their own pod CIDRs, as where pods have
 * addresses of the cloud's network. The route to the other site's pod CIDR leads into the lane and also covers its
 * gateway, but WireGuard's own packets must not use it.
 */
import t from 'tap'
import { LANE_MARK, ROUTE_TABLE_NODE, RULE_NODE } from '../../model/kernel-ids.ts'
import { cluster } from '../gateway/support/worlds.ts'
import {
  GatewayProcess,
  type SiteInit,
  introduce,
  untilUp,
  watched,
  withGateways,
  withSites,
} from '../gateway/support/netns-sites.ts'
import { POD_PROGRAMS, inPod, pings } from '../gateway/support/pod-programs.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false

const MILANO: SiteInit = {
  cluster: cluster('milano', 1, '10.42.0.0/16'),
  pods: '10.42',
  address: '10.42.200.10',
  router: '10.42.200.1',
  lane: { lane: 0 },
}
const PARIS: SiteInit = {
  cluster: cluster('paris', 2, '10.44.0.0/16'),
  pods: '10.44',
  address: '10.44.200.20',
  router: '10.44.200.1',
  lane: { lane: 0 },
}

t.test('gateways with addresses among those of the pods', { skip, timeout: 60_000 * SLOWNESS }, async (t) => {
  await withSites([MILANO, PARIS], temporaryFolder(t), async (sites, internet) => {
    const [milano, paris] = sites
    for (const [site, remote] of [
      [milano, '10.44.0.0/16'],
      [paris, '10.42.0.0/16'],
    ] as const) {
      // The routeagent sets this rule: without a lane there is no route to the other site.
      const rule = [
        'not',
        'fwmark',
        String(LANE_MARK),
        'priority',
        String(RULE_NODE),
        'lookup',
        String(ROUTE_TABLE_NODE),
      ]
      await site.gateway.exec('ip', ['rule', 'add', ...rule])
      await site.gateway.exec('ip', ['route', 'add', 'unreachable', remote, 'table', String(ROUTE_TABLE_NODE)])
    }
    await withGateways(sites, async (left, right) => {
      for (const [say, from, to, wanted] of [
        ['pod to pod', milano.pod, { ns: paris.pod, address: '10.44.0.5' }, '10.42.0.5 200000'],
        ['far pod to far pod', milano.far, { ns: paris.far, address: '10.44.1.5' }, '10.42.1.5 200000'],
      ] as const) {
        const server = to.ns.spawn(process.execPath, ['-e', POD_PROGRAMS.server])
        await new Promise((resolve) => server.stdout?.once('data', resolve))
        t.equal(await inPod(from, 'tcp', to.address), wanted, `${say}: the server sees the pod's own address`)
        server.kill()
      }
      t.match(await pings(milano.pod, '10.44.0.5'), '1 received', 'pod to pod')
      t.match(await pings(milano.far, '10.44.1.5'), '1 received', 'far pod to far pod')
      t.equal(await inPod(milano.far, 'closed', '10.44.1.5'), 'ECONNREFUSED', 'an error comes back to its socket')
      t.match(await pings(milano.pod, '10.44.0.5', '-t', '2'), /From 10\.44\.0\.1 .*Time to live exceeded/)
      t.match(await pings(milano.pod, '10.44.200.20'), '1 received', "the other gateway's own address, by the lane")
      t.match(await pings(milano.gateway, '10.44.0.5'), '1 received', 'from the gateway itself')
      t.equal(left.status?.lanes[0]?.mtu, 1440, 'the MTU follows the underlay, not the lane')
      t.equal(left.status?.connections[0]?.usingAddress, '10.44.200.20:4500')

      // A gateway that is rebuilt while the other still has its routes into the lane.
      await right.stop('SIGKILL')
      await paris.gateway.exec('ip', ['link', 'del', 'sealane0'])
      const again = new GatewayProcess(paris)
      try {
        introduce({ process: left, site: milano }, { process: again, site: paris })
        await Promise.all([untilUp(again, 'milano'), untilUp(left, 'paris')])
        // The other end may only now notice that the lane was down in between.
        const arrives = async (): Promise<boolean> => (await pings(paris.pod, '10.42.0.5')).includes('1 received')
        await eventually(arrives, { deadlineMs: 20_000, say: 'pings when it was made anew' })
      } finally {
        await again.stop()
      }
      const { tunnel, other } = await watched(internet)
      t.equal(other, 0, 'the internet saw nothing but the tunnel')
      t.ok(tunnel > 100, `tunnel packets: ${tunnel}`)
    })
  })
})
