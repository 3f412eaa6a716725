/**
 * A worker and two gateway nodes with real routeagents: a gateway node that is cut off, or whose overlay is blocked,
 * gets no more traffic from the worker; one whose process hangs still does. The overlay has a chosen port.
 *
 *   worker (this namespace) eth0 192.168.7.11 ── [ br0 ] ── eth0 192.168.7.1 [ gw-a ], eth0 192.168.7.2 [ gw-b ]
 */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { runCommand } from '../../kernel/run-command.ts'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
import type { KubeObject } from '../../model/objects.ts'
import { NodeProcess, type NodeProcessInit } from '../routeagent/support/node-process.ts'
import { type Site, here, ip, kernelDump, startRouteAgent } from '../routeagent/support/datapath.ts'
import { NODES, cluster, endpoint, gateway, membership } from '../routeagent/support/site.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'
import { withWays } from '../support/route-ways.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const PARIS = '244.1.0.0/16'
const PORT = 4811
const DEADLINE = { deadlineMs: 30_000 } as const

inPrivateNetns(t, import.meta.url, () => {
  t.test('a worker leaves a gateway node that does not answer', { timeout: 120_000 }, (t) =>
    withNetns((network) =>
      withNetns((a) =>
        withNetns(async (b) => {
          // The kernel's own IPv6 addresses come and go at arbitrary times, and the dumps are compared.
          await new ProcSysctl().write('net/ipv6/conf/all/disable_ipv6', '1')
          await network.exec('ip', 'link add br0 type bridge'.split(' '))
          await network.exec('ip', 'link set br0 up'.split(' '))
          await ip(`link add eth0 type veth peer name worker netns ${network.name}`)
          await network.exec('ip', 'link set worker master br0 up'.split(' '))
          await ip('address add 192.168.7.11/24 dev eth0')
          await ip('link set eth0 up')
          await attach(network, 'gw-a', a, '192.168.7.1')
          await attach(network, 'gw-b', b, '192.168.7.2')
          const before = await kernelDump()
          const folder = temporaryFolder(t)
          const gateways = [new NodeProcess({ node: 'gw-a', netns: a, folder: join(folder, 'a'), overlayPort: PORT })]
          gateways.push(new NodeProcess({ node: 'gw-b', netns: b, folder: join(folder, 'b'), overlayPort: PORT }))
          t.teardown(() => Promise.all(gateways.map((one) => one.stop())))
          for (const one of gateways) one.put(...objects())
          const site = startRouteAgent(t, objects(), { overlayPort: PORT })
          await bothAnswer(site)
          t.equal(await via(), 'gw-a gw-b')
          await cutOff(t, network)
          await blocked(t, b)
          await hangs(t, site, gateways[0]!)
          await allBlocked(t, site)
          await otherPort(t, gateways, { node: 'gw-a', netns: a, folder: join(folder, 'a') })
          site.api.put(membership('leaving'))
          await site.ended
          t.equal(await kernelDump(), before, 'leaving leaves nothing behind')
        }),
      ),
    ),
  )
})

async function attach(network: Netns, name: string, ns: Netns, address: string): Promise<void> {
  await network.exec('ip', ['link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', ns.name])
  await network.exec('ip', ['link', 'set', name, 'master', 'br0', 'up'])
  await ns.exec('ip', ['address', 'add', `${address}/24`, 'dev', 'eth0'])
  await ns.exec('ip', ['link', 'set', 'eth0', 'up'])
}

function objects(): KubeObject[] {
  return [
    membership(),
    ...NODES,
    cluster('milano', 1, '244.0.0.0/16'),
    cluster('paris', 2, PARIS),
    endpoint('milano', 'gw-a', 0),
    endpoint('milano', 'gw-b', 1),
    gateway('gw-a', { paris: 'up' }),
    gateway('gw-b', { paris: ['down', 'up'] }),
  ]
}

/** The gateway nodes that lead to paris by the worker's kernel. */
async function via(): Promise<string> {
  const routes = await ip('route show table 7312')
  const ways = withWays(routes, await ip('nexthop show'))
  const names = { '192.168.7.1': 'gw-a', '192.168.7.2': 'gw-b' }
  return Object.entries(names)
    .filter(([address]) => new RegExp(`via ${address.replaceAll('.', '\\.')} `).test(ways))
    .map(([, name]) => name)
    .join(' ')
}

/** How many probes the worker has sent, or how many were answered. */
async function probes(site: Site, what: 'sent' | 'answered'): Promise<number> {
  const line = new RegExp(`^sealane_routeagent_gateway_probes_total\\{.*what="${what}".*\\} (\\d+)$`, 'm')
  return Number(line.exec(await site.metrics.text())?.[1] ?? 0)
}

/** Waits until each has answered, since only a node that answered before can be found silent. */
async function bothAnswer(site: Site): Promise<void> {
  await eventually(async () => (await via()) === 'gw-a gw-b' && (await probes(site, 'answered')) >= 12, {
    ...DEADLINE,
    say: 'both gateway nodes answer',
  })
}

async function cutOff(t: Test, network: Netns): Promise<void> {
  await network.exec('ip', ['link', 'set', 'gw-a', 'down'])
  await eventually(async () => (await via()) === 'gw-b', { ...DEADLINE, say: 'the other one alone carries' })
  t.pass('a node that is cut off is left')
  await network.exec('ip', ['link', 'set', 'gw-a', 'up'])
  await eventually(async () => (await via()) === 'gw-a gw-b', { ...DEADLINE, say: 'it is used again' })
  t.pass('and used again when it is back')
}

async function blocked(t: Test, gateway: Netns): Promise<void> {
  const table = `table ip block { chain i { type filter hook prerouting priority -400; udp dport ${PORT} drop; }; }`
  await gateway.exec('nft', ['-f', '-'], { input: table })
  await eventually(async () => (await via()) === 'gw-a', { ...DEADLINE, say: 'the overlay to one gateway is blocked' })
  t.pass('a node to which the overlay alone is blocked is left')
  await gateway.exec('nft', ['delete', 'table', 'ip', 'block'])
  await eventually(async () => (await via()) === 'gw-a gw-b', { ...DEADLINE, say: 'it is used again' })
}

/** The kernel of the gateway node forwards as before, and answers TCP probes. */
async function hangs(t: Test, site: Site, gateway: NodeProcess): Promise<void> {
  gateway.pause()
  const until = (await probes(site, 'sent')) + 60
  let left = 0
  await eventually(
    async () => {
      if ((await via()) !== 'gw-a gw-b') left += 1
      return (await probes(site, 'sent')) >= until
    },
    { ...DEADLINE, intervalMs: 20, say: 'sixty more questions' },
  )
  t.equal(left, 0, 'a process that hangs is no node that is dead')
  gateway.resume()
}

/** A firewall of the worker blocks all answers, and the routes stay as they are. */
async function allBlocked(t: Test, site: Site): Promise<void> {
  const table = `table ip block { chain i { type filter hook prerouting priority -400; udp dport ${PORT} drop; }; }`
  const says = (): string => {
    const status = site.api.get('RouteAgent', 'worker')?.status
    return `${status?.reached} ${status?.conditions?.[0]?.reason}`
  }
  await eventually(() => says() === '1/1 NodesAnswer', { ...DEADLINE, say: 'all is well' })
  await runCommand('nft', ['-f', '-'], { input: table })
  await eventually(() => says() === '0/1 NodesCutOff', { ...DEADLINE, say: `the status says so, not ${says()}` })
  t.equal(await via(), 'gw-a gw-b', 'and both gateway nodes stay')
  await here('nft', 'delete table ip block')
  await eventually(() => says() === '1/1 NodesAnswer', { ...DEADLINE, say: 'they answer again' })
}

/** The device of a node with another port neither hears nor reaches the others, and is replaced when the port is mended. */
async function otherPort(t: Test, gateways: NodeProcess[], init: Omit<NodeProcessInit, 'overlayPort'>): Promise<void> {
  const restart = async (overlayPort: number): Promise<void> => {
    await gateways[0]?.stop()
    gateways[0] = new NodeProcess({ ...init, overlayPort })
    gateways[0].put(...objects())
  }
  await restart(PORT + 1)
  await eventually(async () => (await via()) === 'gw-b', { ...DEADLINE, say: 'a gateway with another port is left' })
  t.match(await init.netns.exec('ip', ['-d', 'link', 'show', 'sealane-vx']), new RegExp(`dstport ${PORT + 1}`))
  await restart(PORT)
  await eventually(async () => (await via()) === 'gw-a gw-b', { ...DEADLINE, say: 'it is used again' })
}
