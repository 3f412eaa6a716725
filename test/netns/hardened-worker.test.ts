/** A worker whose new devices do not forward, as in hardened-gateways.test.ts. */
import t from 'tap'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
import {
  TALKER,
  buildBridge,
  buildGatewayNode,
  serving,
  settled,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import { cluster, endpoint, gateway, membership, node, serviceImport, slice } from '../routeagent/support/site.ts'
import { IMPORT_PORTS, PORTS, VIP, callersOf } from '../routeagent/support/vip-calls.ts'
import { eventually } from '../support/eventually.ts'
import { HARDENED } from '../support/hardened-host.ts'
import { inPrivateNetns, withNetns } from '../support/netns.ts'

inPrivateNetns(t, import.meta.url, () => {
  t.test('a worker on a hardened host', { timeout: 90_000 }, (t) =>
    withNetns((client) =>
      withNetns(async (far) => {
        await buildBridge([client])
        await buildGatewayNode(far)
        await serving(far.spawn(process.execPath, [TALKER, 'serve', '244.1.0.5:8080']))
        const sysctl = new ProcSysctl()
        for (const [name, value] of HARDENED) await sysctl.write(name, value)
        const site = startRouteAgent(t, [
          membership(),
          node('gw', '192.168.7.1', '10.42.0.0/24'),
          node('worker', '192.168.7.11', '10.42.1.0/24'),
          cluster('milano', 1, '244.0.0.0/16'),
          cluster('paris', 2, '244.1.0.0/16'),
          endpoint('milano', 'gw'),
          gateway('gw', { paris: 'up' }, 1400),
          serviceImport('web', VIP, { ports: IMPORT_PORTS }),
          slice('web', 'paris', ['244.1.0.5'], PORTS),
        ])
        await settled(site, /slot-0: 245.0.0.7/)
        // The loop of the routes is another one than that of the table.
        const call = (): Promise<readonly string[]> => callersOf(VIP, client).fromPod('tcp', 1)
        await eventually(async () => (await call())[0] !== 'ENETUNREACH', { deadlineMs: 20_000, say: 'a route' })
        t.same(await call(), ['244.1.0.5 10.42.1.5'])
        t.equal(await sysctl.read('net/ipv4/conf/sealane-vx/forwarding'), '1')
        t.equal(await sysctl.read('net/ipv4/conf/sealane-vx/accept_local'), '0')
      }),
    ),
  )
})
