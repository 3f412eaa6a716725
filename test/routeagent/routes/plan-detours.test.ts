/** The gateway node through which another one sends packets to a node that it does not reach. */
import t from 'tap'
import { formatRoute } from '../../../kernel/route/format-ip.ts'
import { CAPABILITY_DRAINING } from '../../../model/lanes/lane-number.ts'
import type { Endpoint } from '../../../model/objects.ts'
import { planDetours } from '../../../routeagent/routes/plan-gateways.ts'
import { planNodeRoutes } from '../../../routeagent/routes/plan-node-routes.ts'
import { overlayNodes } from '../../../routeagent/world/plan-nodes.ts'
import { NODES, WORKER_FACTS, cluster, endpoint, node, routeWorld } from '../support/site.ts'

const ALL = [...NODES, node('worker-2', '192.168.7.12'), node('gw-c', '192.168.7.3')]

const draining = (one: Endpoint): Endpoint => {
  return { ...one, spec: { ...one.spec, capabilities: [...one.spec.capabilities, CAPABILITY_DRAINING] } }
}
const [A, B, C] = ['gw-a', 'gw-b', 'gw-c'].map((name, lane) => endpoint('milano', name, lane)) as [
  Endpoint,
  Endpoint,
  Endpoint,
]

/** The detours of gw-a. */
const ROWS: [say: string, endpoints: Endpoint[], silent: string, detours: string][] = [
  ['nobody is silent', [A, B, C], '', ''],
  ['no other gateway', [A], 'worker', ''],
  ['the gateway of the lowest number', [A, C, B], 'worker', 'worker by gw-b'],
  ['each node that is silent', [A, B], 'worker worker-2', 'worker by gw-b, worker-2 by gw-b'],
  ['one that answers', [A, B, C], 'worker gw-b', 'gw-b by gw-c, worker by gw-c'],
  ['none that answers', [A, B], 'worker gw-b', ''],
  ['one that stays', [A, draining(B), C], 'worker', 'worker by gw-c'],
  ['one that goes, for want of another', [A, draining(B), C], 'worker gw-c', 'gw-c by gw-b, worker by gw-b'],
  ['a gateway without a Node', [A, endpoint('milano', 'nobody', 1)], 'worker', ''],
]

t.test('detours', async (t) => {
  const { nodes } = overlayNodes(ALL)
  const others = [...nodes.values()].filter(({ name }) => name !== 'gw-a')
  for (const [say, ownEndpoints, silent, want] of ROWS) {
    const { by } = planDetours({ others, ownEndpoints, silent: new Set(silent.split(' ')) })
    const found = [...by].map(([name, to]) => `${name} by ${to.name}`).sort()
    t.equal(found.join(', '), want, say)
    for (const [name, to] of by) t.not(name, to.name, 'never by itself')
  }
})

t.test('what comes out of a lane takes the detour, and what was handed on goes straight', async (t) => {
  const plan = planNodeRoutes(
    routeWorld({
      node: 'gw-a',
      nodes: NODES,
      clusters: [cluster('milano', 1, '244.0.0.0/16')],
      endpoints: [A, B],
      silentNodes: new Set(['worker']),
      facts: { ...WORKER_FACTS, addresses: [{ device: 'eth0', address: '192.168.7.1/24' }] },
    }),
  )
  const toWorker = (plan.ok ? plan.routes : []).map(formatRoute).filter((text) => text.includes('10.42.1.0/24'))
  t.strictSame(
    toWorker.map((text) => /via (\S+) .* table (\d+)/.exec(text)?.slice(1).join(' in ')),
    ['192.168.7.2 in 7310', '192.168.7.11 in 7316'],
  )
})
