/** Which nodes probe which over the overlay, by the nodes that have an Endpoint. */
import t from 'tap'
import { formatRoute, formatRule } from '../../../kernel/route/format-ip.ts'
import { answering } from '../../../routeagent/routes/plan-gateways.ts'
import { overlayNodes } from '../../../routeagent/world/plan-nodes.ts'
import { planProbeRoutes } from '../../../routeagent/probes/plan-probe-routes.ts'
import { NODES, endpoint, node } from '../support/site.ts'

const ALL = [...NODES, node('worker-2', '192.168.7.12'), node('gw-c', '192.168.7.3')]

const ROWS: [self: string, gateways: string[], gatewayNodes: string, others: string][] = [
  ['worker', [], '', ''],
  ['worker', ['gw-a'], 'gw-a', ''],
  ['worker', ['gw-a', 'gw-b', 'gw-c'], 'gw-a gw-b gw-c', ''],
  ['worker', ['gw-a', 'nobody'], 'gw-a', ''],
  ['gw-a', ['gw-a'], '', 'gw-b gw-c worker worker-2'],
  ['gw-a', ['gw-a', 'gw-b', 'gw-c'], 'gw-b gw-c', 'worker worker-2'],
]

t.test('nodes that are asked: gateway nodes, and by these all others too', async (t) => {
  const { nodes } = overlayNodes(ALL)
  for (const [self, gateways, gatewayNodes, others] of ROWS) {
    const plan = planProbeRoutes({
      self: nodes.get(self)!,
      others: [...nodes.values()].filter(({ name }) => name !== self),
      ownEndpoints: gateways.map((name, lane) => endpoint('milano', name, lane)),
    })
    const names = (isGateway: boolean): string =>
      plan.nodes
        .filter((one) => one.isGateway === isGateway)
        .map((one) => one.node)
        .sort()
        .join(' ')
    const say = `${self} among ${gateways.join()}`
    t.equal(names(true), gatewayNodes, `${say}: gateway nodes`)
    t.equal(names(false), others, `${say}: other nodes`)
    t.equal(plan.routes.length, plan.nodes.length, say)
    t.equal(plan.rules.length, plan.nodes.length === 0 ? 0 : 3, say)
  }
})

t.test('as ip prints it', async (t) => {
  const { nodes } = overlayNodes(NODES)
  const [gw, worker] = [nodes.get('gw-a')!, nodes.get('worker')!]
  const plan = planProbeRoutes({ self: worker, others: [gw], ownEndpoints: [endpoint('milano', 'gw-a')] })
  t.strictSame(plan.routes.map(formatRoute), [
    'ip route replace 192.168.7.1/32 via 192.168.7.1 dev sealane-vx onlink table 7315 proto 173',
  ])
  t.strictSame(plan.rules.map(formatRule), [
    'ip rule add priority 72 ipproto udp dport 4498 lookup 7315 protocol 173',
    'ip rule add priority 72 ipproto tcp dport 4498 lookup 7315 protocol 173',
    'ip rule add priority 72 ipproto tcp sport 4498 lookup 7315 protocol 173',
  ])
})

t.test('silent gateways are left out as long as another one is left', async (t) => {
  const all = ['a', 'b', 'c'].map((name) => ({
    node: name,
    lane: 0,
    lanes: 1,
    leaves: false,
    flaps: false,
    mtu: undefined,
  }))
  const left = (silent: string[], late: string[] = []): string =>
    answering(all, { silentNodes: new Set(silent), lateGateways: new Set(late) })
      .map((one) => one.node)
      .join('')
  t.equal(answering(all, {}).length, 3)
  t.equal(left(['b']), 'ac')
  t.equal(left(['a', 'b']), 'c')
  t.equal(left(['a', 'b', 'c']), 'abc')
  t.equal(left(['x']), 'abc')
  t.equal(left([], ['a']), 'bc', 'nor one that never answered')
  t.equal(left(['b', 'c'], ['a']), 'a', 'which is better than a silent one')
  const [a, b, c] = all as [(typeof all)[0], (typeof all)[0], (typeof all)[0]]
  const flaps = { ...b, flaps: true }
  const used = (some: typeof all, silent: string[] = []): string =>
    answering(some, { silentNodes: new Set(silent) })
      .map((one) => one.node)
      .join('')
  t.equal(used([a, flaps, c]), 'ac', 'none that flaps')
  t.equal(used([flaps]), 'b', 'but for want of another')
  t.equal(used([a, flaps], ['a']), 'b', 'rather than one that is silent')
  t.equal(used([{ ...a, leaves: true }, flaps]), 'b', 'or one that goes')
})
