/** A node whose gateway nodes stop answering, one after the other. All drivers are fakes. */
import t from 'tap'
import type { RouteAgent } from '../../model/objects.ts'
import { eventually } from '../support/eventually.ts'
import { Machine } from './support/machine.ts'
import { endpoint, gateway, node } from './support/site.ts'

t.test('a node that is cut off from all its gateways says so, and keeps its routes', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const { api, probes, routes } = machine
  api.put(node('gw-b', '192.168.7.2', '10.42.2.0/24'))
  api.put(endpoint('milano', 'gw-b', 1))
  api.put(gateway('gw', { paris: 'up' }))
  api.put(gateway('gw-b', { paris: ['down', 'up'] }))
  probes.alive.add('192.168.7.1')
  probes.alive.add('192.168.7.2')
  const first = machine.start(t)
  const status = (): RouteAgent['status'] => api.get('RouteAgent', 'worker')?.status
  const says = (): string => {
    const { reached, silentNodes = [], conditions = [], clusters = [] } = status() ?? {}
    const [found] = conditions
    const by = clusters.flatMap(({ gateways }) => gateways).join('+')
    return [reached, by, found?.status, found?.reason, silentNodes.join('+')].join(' ')
  }
  const until = (want: string): Promise<unknown> => eventually(() => says() === want, { say: `${want}, is ${says()}` })
  await until('1/1 gw+gw-b True NodesAnswer ')
  // Only a gateway node that has answered before can become silent.
  const isAsked = (address: string): boolean => probes.sent.some(({ to }) => to === address)
  await eventually(() => ['192.168.7.1', '192.168.7.2'].every(isAsked), { say: 'both are asked' })
  probes.alive.delete('192.168.7.2')
  await until('1/1 gw False GatewayNodeSilent gw-b')
  probes.alive.delete('192.168.7.1')
  await until('0/1  False NodesCutOff gw+gw-b')
  t.match(await machine.metrics.text(), /sealane_routeagent_path_gateways\{cluster="paris",.*\} 0\n/)
  t.match(routes.toString(), /244\.1\.0\.0\/16 .*192\.168\.7\.1.*192\.168\.7\.2|244\.1\.0\.0\/16 via 192\.168\.7\./)
  await first.stop()
  machine.start(t)
  await machine.ready()
  await eventually(() => probes.open.size > 0, { say: 'the new process asks' })
  t.equal(says(), '0/1  False NodesCutOff gw+gw-b', 'a new process that has heard nobody takes nothing back')
  probes.alive.add('192.168.7.1')
  await until('1/1 gw False GatewayNodeSilent gw-b')
  probes.alive.add('192.168.7.2')
  await until('1/1 gw+gw-b True NodesAnswer ')
})
