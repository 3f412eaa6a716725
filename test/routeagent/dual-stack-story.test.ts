/**
 * One routeagent whose cluster gets IPv6 pod CIDRs, gives them up, gets them again and leaves. All drivers are fakes.
 */
import t from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import { NFT_TABLE_NODE, ROUTE_TABLE_PROBES } from '../../model/kernel-ids.ts'
import { clustersetIpv6 } from '../../model/addresses/addressing.ts'
import { formatAddress, parseAddress } from '../../model/values/ip.ts'
import { eventually } from '../support/eventually.ts'
import { Machine } from './support/machine.ts'
import {
  cluster,
  dualStack,
  dualStackNode,
  gateway,
  membership,
  node,
  serviceImport,
  slice,
  slice6,
} from './support/site.ts'

const VIP6 = formatAddress(clustersetIpv6(parseAddress('245.0.0.7')))
const MILANO = cluster('milano', 1, '244.0.0.0/16')

/** Joins a site of two families, whose node has an IPv6 address in its pod network. */
async function joinDualStack(machine: Machine): Promise<void> {
  const { api, routes } = machine
  machine.join()
  await routes.addAddress({ device: 'cni0', address: 'fd00:10:42:1::1/64' })
  routes.putMainRoutes([
    { destination: '10.42.1.0/24', type: 'unicast', device: 'cni0' },
    { destination: 'fd00:10:42:1::/64', type: 'unicast', device: 'cni0' },
  ])
  api.put(dualStackNode(node('gw', '192.168.7.1', '10.42.0.0/24'), 'fd00:10:42::/64'))
  api.put(dualStackNode(node('worker', '192.168.7.11', '10.42.1.0/24'), 'fd00:10:42:1::/64'))
  api.put(dualStack(MILANO, 'fd00:10:42::/56'))
  api.put(dualStack(cluster('paris', 2, '244.1.0.0/16'), 'fd00:20:42::/56'))
  api.put(serviceImport('web', '245.0.0.7', { ips: ['245.0.0.7', VIP6] }))
  api.put(slice('web', 'paris', ['244.1.0.5']))
  api.put(slice6('web', 'paris', ['fd00:20:42::5']))
  api.put(slice6('web', 'milano', ['fd00:10:42:1::5']))
}

const slots = async ({ nft6 }: Machine): Promise<string> => {
  const elements = await nft6.elements(NFT_TABLE_NODE, 'slots').catch(() => [])
  // A single backend has two numbers.
  return [...new Set(elements.map(({ key, value }) => `${key.replace(/ \. \d+$/, '')} ${value}`))].join(', ')
}
const ipv6Lines = ({ routes }: Machine): string[] => routes.toString().match(/^ip -6 (route|rule|neigh).*$/gm) ?? []

t.test('a life with IPv6', async (t) => {
  const machine = new Machine(t)
  const { api, nft, nft6, routes, sysctl } = machine
  await joinDualStack(machine)
  const before = machine.kernel()
  const first = machine.start(t)
  await machine.ready()
  t.equal(await slots(machine), `${VIP6} . tcp . 80 fd00:10:42:1::5, ${VIP6} . tcp . 80 fd00:20:42::5`)
  t.strictSame(await nft6.elements(NFT_TABLE_NODE, 'hairpin'), [{ key: 'fd00:10:42:1::5 . fd00:10:42:1::5' }])
  t.strictSame(await machine.backends('245.0.0.7'), ['244.1.0.5'], 'each table has the backends of its family')
  t.match(
    routes.toString(),
    'ip -6 route replace fd00:20:42::/56 via fe80::5ea1:c0a8:701 dev sealane-vx onlink table 7312',
  )
  t.equal(await sysctl.read('net/ipv6/conf/all/forwarding'), '1')
  t.equal(await sysctl.read('net/ipv6/conf/sealane-vx/disable_ipv6'), '0')
  const reported = (): readonly string[] | undefined => api.get('RouteAgent', 'worker')?.status?.podRanges
  t.strictSame(reported(), ['10.42.1.0/24', 'fd00:10:42:1::/64'])
  const metrics = await machine.metrics.text()
  t.match(metrics, /service_ports\{state="served".*\} 2/, 'ports of both tables are counted')

  const sent = nft.accepted.length
  await machine.putThrough('balance-ipv6', slice6('web', 'milano', []))
  await eventually(async () => (await slots(machine)) === `${VIP6} . tcp . 80 fd00:20:42::5`)
  t.equal(nft.accepted.length, sent, 'the other table hears nothing of it')

  api.put(gateway('gw', { paris: 'down' }))
  await eventually(() => !routes.toString().includes('fd00:20:42::/56 via'), { say: 'no way to paris' })
  t.match(routes.toString(), 'ip -6 route replace unreachable fd00:20:42::/56')
  await eventually(async () => (await slots(machine)) === '', { say: 'and no backends there' })

  api.put(MILANO)
  await eventually(() => nft6.tableNames().length === 0 && ipv6Lines(machine).length === 0, { say: 'no IPv6 pods' })
  await eventually(() => reported()?.join() === '10.42.1.0/24')
  t.strictSame(nft.tableNames(), [NFT_TABLE_NODE])
  t.strictSame(machine.status.notReady(), [])
  const quiet = nft6.accepted.length
  api.put(slice6('web', 'milano', ['fd00:10:42:1::7']))
  await machine.putThrough('balance-ipv6', gateway('gw', { paris: 'up' }))
  await machine.serves('245.0.0.7', '244.1.0.5')
  t.equal(nft6.accepted.length, quiet, 'and nothing is sent for them')

  api.put(dualStack(MILANO, 'fd00:10:42::/56'))
  const both = `${VIP6} . tcp . 80 fd00:10:42:1::7, ${VIP6} . tcp . 80 fd00:20:42::5`
  await eventually(async () => (await slots(machine)) === both, { say: 'IPv6 again, with what happened meanwhile' })
  await first.stop()
  const second = machine.start(t)
  await machine.ready()
  api.put(membership('leaving'))
  await second.ended
  t.equal(machine.kernel(), before, 'leaving takes everything of both families out')
})

t.test('a table of another time is taken out where there are no IPv6 pods', async (t) => {
  const machine = new Machine(t)
  machine.join()
  await machine.nft6.run([{ verb: 'add-table', table: NFT_TABLE_NODE }])
  machine.start(t)
  await machine.ready()
  t.strictSame(machine.nft6.tableNames(), [])
})

t.test('a kernel without IPv6 goes on with IPv4, and says so', async (t) => {
  const machine = new Machine(t)
  await joinDualStack(machine)
  const read = machine.sysctl.read.bind(machine.sysctl)
  machine.sysctl.read = (name) => (name.startsWith('net/ipv6/') ? Promise.resolve(undefined) : read(name))
  machine.start(t)
  await machine.ready()
  await machine.serves('245.0.0.7', '244.1.0.5')
  t.strictSame(ipv6Lines(machine), [])
  t.strictSame(machine.nft6.accepted, [])
  t.strictSame(machine.logger.messages('error'), [])
  const reported = machine.logger.lines.filter(({ message }) => message === 'some routes are left out')
  t.match(JSON.stringify(reported), 'Node worker: this kernel has no IPv6, so only IPv4 is routed')
  t.strictSame(machine.api.get('RouteAgent', 'worker')?.status?.podRanges, ['10.42.1.0/24'])
})

t.test('without IPv6 pods it is ready again after its world was away', async (t) => {
  const machine = new Machine(t)
  machine.join()
  machine.start(t)
  await machine.ready()
  machine.api.drop('Cluster', 'milano')
  await eventually(() => machine.status.notReady().some((why) => why.startsWith('balance: waiting for')))
  machine.api.put(MILANO)
  await machine.ready()
})

t.test('rules of an earlier release, which had none for IPv6', async (t) => {
  const machine = new Machine(t)
  await joinDualStack(machine)
  await machine.routes.addRule({ priority: 7311, table: 7311 })
  machine.start(t)
  await machine.ready()
  const others = (await machine.routes.rules()).filter(({ table }) => table !== ROUTE_TABLE_PROBES)
  const rules = others.map(({ family = 4, priority, table }) => `${family}:${priority}:${table}`)
  t.strictSame(rules.sort(), [
    ...['4:32764:254', '4:32765:7317', '4:7311:7311', '4:7312:7312'],
    ...['6:32764:254', '6:32765:7317', '6:75:7312'],
  ])
})

t.test('a refusal in one table is tried again there, and does not hold up the other', async (t) => {
  const machine = new Machine(t)
  await joinDualStack(machine)
  machine.nft6.failNext(new KernelError('EBUSY', 'nft', 'not now'))
  machine.start(t)
  await machine.ready()
  t.equal(machine.nft.accepted.length, 1)
  t.equal(machine.nft6.accepted.length, 1)
  const errors = machine.logger.lines.filter(({ level }) => level === 'error')
  t.match(errors, [{ message: 'a round failed; retrying', fields: { loop: 'balance-ipv6' } }])
  t.equal(errors.length, 1)
})
