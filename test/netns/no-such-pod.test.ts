/**
 * Packets from a lane or the overlay to an address of this cluster that no pod has: they must not leave by the node's
 * default route, unencrypted. Local pods, pods of other nodes and the node's own traffic work as before.
 */
import t from 'tap'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
import { runCommand } from '../../kernel/run-command.ts'
import { buildBridge, buildGatewayNode, ip, kernelDump, startRouteAgent } from '../routeagent/support/datapath.ts'
import { cluster, endpoint, gateway, membership, node } from '../routeagent/support/site.ts'
import { eventually } from '../support/eventually.ts'
import { inPrivateNetns, withNetns } from '../support/netns.ts'

inPrivateNetns(t, import.meta.url, () => {
  t.test('an address that no pod has', { timeout: 90_000 }, (t) =>
    withNetns((client) =>
      withNetns(async (far) => {
        // The kernel's own IPv6 addresses come and go at arbitrary times, and the dumps are compared.
        await new ProcSysctl().write('net/ipv6/conf/all/disable_ipv6', '1')
        await buildBridge([client])
        await buildGatewayNode(far)
        await ip('route add default via 192.168.7.1')
        await ip('link add sealane0 type bridge')
        await ip('link set sealane0 up')
        const sysctl = new ProcSysctl()
        for (const name of ['all', 'sealane0']) await sysctl.write(`net/ipv4/conf/${name}/rp_filter`, '0')
        await sysctl.write('net/ipv4/ip_forward', '1')
        const before = await kernelDump()
        const site = startRouteAgent(t, [
          membership(),
          node('gw', '192.168.7.1', '10.42.0.0/24'),
          node('worker', '192.168.7.11', '10.42.1.0/24'),
          cluster('milano', 1, '244.0.0.0/16'),
          cluster('paris', 2, '244.1.0.0/16'),
          endpoint('milano', 'worker'),
          endpoint('paris', 'gw-p'),
          gateway('worker', { paris: 'up' }, 1400),
        ])
        const way = async (to: string, by: string): Promise<string> => {
          // The overlay has the loose check of sources: the source is an address that this node has a route to.
          const from = by === 'sealane0' ? '244.1.0.5' : '10.42.0.5'
          const { stdout, stderr } = await runCommand('ip', `route get ${to} from ${from} iif ${by}`.split(' '))
          return / dev (\S+)/.exec(stdout)?.[1] ?? stderr.trim()
        }
        await eventually(() => site.status.notReady().length === 0, { say: 'a whole plan is in the kernel' })
        const isUnreachable = async (): Promise<boolean> =>
          /No route to host/.test(await way('10.42.7.7', 'sealane-vx'))
        await eventually(isUnreachable, { say: 'an address that no pod has is unreachable' })
        t.equal(await way('10.42.0.5', 'sealane0'), 'sealane-vx', 'pods of the other node')
        for (const device of ['sealane0', 'sealane-vx']) {
          t.match(await way('10.42.7.7', device), 'No route to host', `${device}: no pod`)
          t.equal(await way('10.42.1.5', device), 'cni0', `${device}: a pod of this node`)
        }
        t.match(await ip('route get 10.42.7.7'), 'dev eth0', "the node's own traffic goes as before")
        const { stdout } = await runCommand('ip', 'route get 10.42.7.7 from 10.42.1.5 iif cni0'.split(' '))
        t.match(stdout, 'dev eth0', 'and that of its pods')
        site.api.put(membership('leaving'))
        await site.ended
        t.equal(await kernelDump(), before, 'leaving leaves nothing behind')
      }),
    ),
  )
})
