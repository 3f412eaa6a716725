/** The gateway nodes that a node finds silent, by probes over a network of fakes. */
import t, { type Test } from 'tap'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { routeAgentMetrics } from '../../../routeagent/world/metrics.ts'
import { GatewayProbes } from '../../../routeagent/probes/gateway-probes.ts'
import type { ProbedNode } from '../../../routeagent/probes/plan-probe-routes.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { FakeProbes } from '../../support/fake-probes.ts'

const OWN = '192.168.7.11'
const NODES: readonly [ProbedNode, ProbedNode, ProbedNode] = [
  { node: 'gw-a', address: '192.168.7.1', isGateway: true },
  { node: 'gw-b', address: '192.168.7.2', isGateway: true },
  { node: 'gw-c', address: '192.168.7.3', isGateway: true },
]

function setUp(t: Test) {
  const clock = new FakeClock()
  const network = new FakeProbes()
  const traffic = { packets: 0 }
  let changes = 0
  let changesOfStates = 0
  const probes = new GatewayProbes({
    clock,
    logger: new CapturingLogger(),
    metrics: routeAgentMetrics(createMetrics('routeagent')),
    openSocket: network.openSocket,
    devicePackets: () => Promise.resolve(traffic.packets),
    onChange: () => (changes += 1),
    onNodeState: () => (changesOfStates += 1),
  })
  t.teardown(() => probes.close())
  return { clock, network, traffic, probes, changes: () => changes, changesOfStates: () => changesOfStates }
}

t.test('a gateway that answered and stops is silent; one that never answered is not', async (t) => {
  const { clock, network, probes, changes } = setUp(t)
  network.alive.add('192.168.7.1')
  network.alive.add('192.168.7.2')
  probes.setNodes(OWN, NODES)
  await clock.advance(3000)
  t.strictSame([...probes.silent()], [])
  t.equal(changes(), 0, 'who answers first changes nothing')
  network.alive.delete('192.168.7.2')
  await clock.advance(600)
  t.strictSame([...probes.silent()], ['gw-b'])
  t.equal(changes(), 1)
  await clock.advance(5000)
  t.strictSame([...probes.silent()], ['gw-b'], 'it stays so')
  network.alive.add('192.168.7.2')
  await clock.advance(2000)
  t.strictSame([...probes.silent()], [])
})

t.test('a process that is silent is not, while its kernel answers', async (t) => {
  const { clock, network, probes } = setUp(t)
  network.alive.add('192.168.7.1')
  network.kernels.add('192.168.7.1')
  probes.setNodes(OWN, NODES.slice(0, 1))
  await clock.advance(3000)
  network.alive.clear()
  await clock.advance(30_000)
  t.strictSame([...probes.silent()], [])
  network.kernels.clear()
  await clock.advance(5000)
  t.strictSame([...probes.silent()], ['gw-a'])
})

t.test('nodes that go are forgotten; without any, nothing is open; another address is a new start', async (t) => {
  const { clock, network, probes } = setUp(t)
  network.alive.add('192.168.7.1')
  probes.setNodes(OWN, NODES)
  await clock.advance(3000)
  network.alive.clear()
  await clock.advance(3000)
  t.equal(probes.silent().size, 1)
  probes.setNodes(OWN, NODES.slice(1))
  t.equal(probes.silent().size, 0)
  probes.setNodes('192.168.7.12', NODES)
  await clock.advance(100)
  t.strictSame([...network.open.keys()], ['192.168.7.12'])
  probes.setNodes('192.168.7.12', [])
  t.equal(network.open.size, 0)
  t.strictSame(clock.pending(), [])
})

t.test('gateways are asked more often while the overlay carries', async (t) => {
  const { clock, network, traffic, probes } = setUp(t)
  network.alive.add('192.168.7.1')
  probes.setNodes(OWN, NODES.slice(0, 1))
  await clock.advance(20_000)
  const inTenSeconds = async (perSecond: number): Promise<number> => {
    const before = network.sent.length
    for (let second = 0; second < 10; second += 1) {
      traffic.packets += perSecond
      await clock.advance(1000)
    }
    return network.sent.length - before
  }
  const idle = await inTenSeconds(2)
  t.ok(idle >= 9 && idle <= 11, `our own probes are no traffic: ${idle}`)
  await inTenSeconds(100)
  const busy = await inTenSeconds(100)
  t.ok(busy >= 42 && busy <= 55, `${busy}`)
})

t.test('a gateway that was lost before this process started comes after those that answer', async (t) => {
  const { clock, network, probes, changes, changesOfStates } = setUp(t)
  probes.setNodes(OWN, [...NODES, { node: 'worker', address: '192.168.7.4', isGateway: false }])
  await clock.advance(5000)
  t.strictSame([...probes.late()], [], 'while none answers, all are used')
  network.alive.add('192.168.7.1')
  await clock.advance(5000)
  t.strictSame([...probes.late()].sort(), ['gw-b', 'gw-c'])
  t.equal(changesOfStates(), 3, 'the first answer, who is late, and who is unheard')
  network.alive.add('192.168.7.2')
  await clock.advance(5000)
  t.strictSame([...probes.late()], ['gw-c'], 'an answer ends it')
  t.equal(changes(), 0, 'nothing is said about them')
})

t.test('what the probes say of each node: a gateway that never answers is unheard after a while', async (t) => {
  const { clock, network, probes, changesOfStates } = setUp(t)
  network.alive.add('192.168.7.1')
  network.alive.add('192.168.7.2')
  probes.setNodes(OWN, NODES)
  const states = (): string => [...probes.nodeStates()].map(([node, { state }]) => `${node} ${state}`).join(', ')
  t.equal(states(), 'gw-a asked, gw-b asked, gw-c asked')
  await clock.advance(3000)
  t.equal(states(), 'gw-a answers, gw-b answers, gw-c asked')
  t.equal(changesOfStates(), 3, 'the first answers of two, and that the third is late')
  network.alive.delete('192.168.7.2')
  await clock.advance(15_000)
  t.equal(states(), 'gw-a answers, gw-b silent, gw-c unheard')
  t.equal(changesOfStates(), 4, 'and whoever does not: late first, then unheard')
  t.strictSame([...probes.silent()], ['gw-b'], 'routes leave those that answered before, and no other')
  t.strictSame([...probes.late()], ['gw-c'], 'and use the one that never answered only without another')
  network.fail(OWN, 'EADDRINUSE')
  t.match(probes.problem(), { message: /EADDRINUSE/u, reason: 'ProbeSocketFailed' })
})
