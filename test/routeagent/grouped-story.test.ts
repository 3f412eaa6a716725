/** A routeagent on a kernel with next-hop objects, which spreads flows by ports. All drivers are fakes. */
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { Machine } from './support/machine.ts'
import { endpoint, gateway, membership, node } from './support/site.ts'

t.test('on a kernel with next-hop objects the ways to a cluster are one group', async (t) => {
  const machine = new Machine(t)
  machine.grouped = true
  machine.join()
  const { api, routes, probes } = machine
  api.put(node('gw-b', '192.168.7.2', '10.42.2.0/24'))
  api.put(endpoint('milano', 'gw-b', 1))
  api.put(gateway('gw', { paris: 'up' }))
  api.put(gateway('gw-b', { paris: ['down', 'up'] }))
  for (const address of ['192.168.7.1', '192.168.7.2']) probes.alive.add(address)
  const running = machine.start(t)
  await machine.ready()
  const members = (): string | undefined => /id 731401004 group (\S+) /.exec(machine.kernel())?.[1]
  await eventually(() => members() === '731400000/731400002', { say: 'both gateways' })
  t.match(routes.toString(), 'ip route replace 244.1.0.0/16 nhid 731401004 table 7312 ')
  await routes.nextHops.remove(731400002)
  await eventually(() => members() === '731400000/731400002', { say: 'repaired' })
  api.put(gateway('gw-b', { paris: ['down', 'down'] }))
  await eventually(() => members() === '731400000', { say: 'one gateway' })
  t.equal(await machine.sysctl.read('net/ipv4/fib_multipath_hash_policy'), '1', 'by ports')
  api.put(membership('leaving'))
  await running.ended
  t.notMatch(machine.kernel(), 'nexthop')
  t.equal(await machine.sysctl.read('net/ipv4/fib_multipath_hash_policy'), '0')
})

t.test('a hash policy that somebody chose stays', async (t) => {
  const machine = new Machine(t)
  await machine.sysctl.write('net/ipv4/fib_multipath_hash_policy', '3')
  machine.join()
  const running = machine.start(t)
  await machine.ready()
  t.equal(await machine.sysctl.read('net/ipv4/fib_multipath_hash_policy'), '3')
  machine.api.put(membership('leaving'))
  await running.ended
  t.equal(await machine.sysctl.read('net/ipv4/fib_multipath_hash_policy'), '3')
})

t.test('what gets through a link decides the MTU of the way there', async (t) => {
  const machine = new Machine(t)
  machine.grouped = true
  machine.join()
  const { api, routes, probes } = machine
  const up = gateway('gw', { paris: 'up' })
  api.put(up)
  probes.alive.add('192.168.7.1')
  machine.start(t)
  await machine.ready()
  const mtu = (): string | undefined => /244\.1\.0\.0\/16 .* mtu (\d+)/.exec(routes.toString())?.[1]
  await eventually(() => mtu() === '1440', { say: 'as the device' })
  const status = up.status!
  const connections = status.connections.map((one) => ({ ...one, mtu: 1232 }))
  api.put({ ...up, status: { ...status, connections } })
  await eventually(() => mtu() === '1232', { say: 'as the link' })
  api.put(up)
  await eventually(() => mtu() === '1440', { say: 'as the device again' })
})
