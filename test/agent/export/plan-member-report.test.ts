/** The report of a cluster about itself for the operators of its broker. */
import fc from 'fast-check'
import t from 'tap'
import { type MemberReportWorld, planMemberReport } from '../../../agent/publish/plan-member-report.ts'
import { type ServiceKey, serviceKey } from '../../../model/ids.ts'
import { reportProblem } from '../../../model/member-status.ts'
import type { Cluster, Condition, Gateway, RouteAgent } from '../../../model/objects.ts'

const NOTHING: MemberReportWorld = {
  own: 'milano',
  version: '0.2.0',
  gateways: [],
  routeAgents: [],
  silent: new Set(),
  clusters: [],
  exports: new Map(),
  conflicts: new Map(),
  notImported: [],
}

function condition(type: string, status: Condition['status'], reason: string): Condition {
  return { type, status, reason: reason as Condition['reason'], message: '', lastTransitionTime: '' }
}

function cluster(name: string, ...conditions: Condition[]): Cluster {
  return { metadata: { name }, status: { conditions } } as unknown as Cluster
}

function gateway(version: string, states: readonly string[], more: object = {}): Gateway {
  const connections = states.map((state) => ({ state }))
  return { metadata: { name: 'n1' }, status: { version, connections, ...more } } as unknown as Gateway
}

function exported(...reasons: readonly (string | undefined)[]): MemberReportWorld['exports'] {
  const rows = reasons.map((reason, i): [ServiceKey, { valid: never }] => [
    serviceKey('shop', `web-${i}`),
    { valid: condition('Valid', reason === undefined ? 'True' : 'False', reason ?? 'Valid') as never },
  ])
  return new Map(rows)
}

t.test('nothing is wrong', (t) => {
  t.same(planMemberReport(NOTHING), {
    versions: ['0.2.0'],
    lanes: { up: 0, of: 0 },
    exports: { count: 0, failed: 0 },
    problems: [],
  })
  const routeAgents = [
    { metadata: { name: 'n1' }, status: { version: '0.1.0', clusters: [] } },
  ] as unknown as RouteAgent[]
  const gateways = [gateway('0.2.0', ['up', 'up']), gateway('0.1.0', ['up'])]
  const clusters = [cluster('milano'), cluster('paris', condition('Connected', 'True', 'LaneUp'))]
  t.same(planMemberReport({ ...NOTHING, gateways, routeAgents, clusters, exports: exported(undefined) }), {
    versions: ['0.1.0', '0.2.0'],
    lanes: { up: 3, of: 3 },
    exports: { count: 1, failed: 0 },
    problems: [],
  })
  t.end()
})

t.test('links of a gateway that has stopped to report do not count as up', (t) => {
  const gone = gateway('0.2.0', ['up', 'up'], { conditions: [condition('Ready', 'Unknown', 'GatewayStatusStale')] })
  const { lanes, problems } = planMemberReport({ ...NOTHING, gateways: [gateway('0.2.0', ['up']), gone] })
  t.same(lanes, { up: 1, of: 3 })
  t.match(problems, [{ code: 'GatewayStatusStale', count: 1 }])
  t.end()
})

t.test('what a routeagent said before it became silent does not count, but that it is silent', (t) => {
  const routeAgents = ['n1', 'n2', 'n3'].map((name) => {
    const conditions = [condition('NodesAnswer', 'False', 'GatewayNodeSilent')]
    return { metadata: { name }, status: { version: '0.2.0', clusters: [], failure: 'no nft', conditions } }
  }) as unknown as RouteAgent[]
  const { problems } = planMemberReport({ ...NOTHING, routeAgents, silent: new Set(['n1', 'n3', 'gone']) })
  t.same(problems, [
    { code: 'GatewayNodeSilent', severity: 'degraded', count: 1 },
    { code: 'RoundFailed', severity: 'degraded', count: 1 },
    { code: 'RouteAgentSilent', severity: 'degraded', count: 2 },
  ])
  t.end()
})

t.test('problems are counted by code, the worst first', (t) => {
  const world: MemberReportWorld = {
    ...NOTHING,
    gateways: [gateway('0.2.0', ['up', 'down', 'connecting'], { failure: 'no nft' })],
    clusters: [
      cluster('milano', condition('ClusterDNS', 'False', 'ClusterDNSNotWired'), condition('Connected', 'False', 'Own')),
      cluster('paris', condition('Connected', 'False', 'NoLane')),
      cluster('lyon', condition('Connected', 'False', 'FarGatewayAwaited')),
      cluster('tokyo', condition('Connected', 'Unknown', 'NoLane'), condition('InContact', 'False', 'Silent')),
    ],
    exports: exported('ServiceNotFound', undefined, 'ServiceNotFound'),
    conflicts: new Map([[serviceKey('shop', 'web-1'), { reasons: ['PortConflict', 'TypeConflict'], message: '' }]]),
    notImported: [{ reason: 'NamespaceMissing', namespace: 'shop', name: '', cluster: '' }],
  }
  const { lanes, exports, problems } = planMemberReport(world)
  t.same(
    [lanes, exports],
    [
      { up: 1, of: 3 },
      { count: 3, failed: 2 },
    ],
  )
  t.same(
    problems.map(({ code, severity, count }) => `${severity} ${code} ${count}`),
    [
      'down NoLane 2',
      'degraded ClusterDNSNotWired 1',
      'degraded RoundFailed 1',
      'degraded ServiceNotFound 2',
      'notice FarGatewayAwaited 1',
      'notice NamespaceMissing 1',
      'notice PortConflict 1',
      'notice Silent 1',
      'notice TypeConflict 1',
    ],
  )
  t.end()
})

t.test('nodes that are cut off, and those that have lost a gateway', (t) => {
  const agents = [
    condition('NodesAnswer', 'False', 'NodesCutOff'),
    condition('NodesAnswer', 'False', 'GatewayNodeSilent'),
    condition('NodesAnswer', 'Unknown', 'GatewayNodeUnheard'),
    condition('NodesAnswer', 'True', 'NodesAnswer'),
  ].map((one) => ({ metadata: { name: 'n' }, status: { version: '0.1.0', clusters: [], conditions: [one] } }))
  const { problems } = planMemberReport({ ...NOTHING, routeAgents: agents as unknown as RouteAgent[] })
  t.same(
    problems.map(({ code, severity, count }) => `${severity} ${code} ${count}`),
    ['down NodesCutOff 1', 'degraded GatewayNodeSilent 1', 'degraded GatewayNodeUnheard 1'],
  )
  t.end()
})

t.test('whatever the objects say, a report can be sent', (t) => {
  const text = fc.oneof(fc.string({ maxLength: 100 }), fc.stringMatching(/^[A-Z][A-Za-z0-9,]{0,70}$/))
  fc.assert(
    fc.property(fc.array(text, { maxLength: 60 }), fc.array(text, { maxLength: 20 }), (reasons, versions) => {
      const clusters = reasons.map((reason, i) => cluster(`c${i}`, condition('Connected', 'False', reason)))
      const gateways = versions.map((version) => gateway(version, ['up', version]))
      const report = planMemberReport({ ...NOTHING, clusters, gateways, exports: exported(...reasons) })
      t.equal(reportProblem(report), undefined)
    }),
  )
  t.end()
})
