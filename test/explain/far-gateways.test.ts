/** A cluster without a gateway yet, and a cluster whose gateways no link leads to: one line for each problem. */
import t from 'tap'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import { NOW, type ObjectsByKind, factSet, healthyReports, importedSlice } from '../support/objects/member-facts.ts'
import { DOWN, type Loose, brokenMember, changeLinks, linesOf } from './broken-member.ts'

function cutOffLines(severity: string): readonly string[] {
  return [`${severity} ClusterCutOff Cluster paris (LaneConnecting ×4)`]
}

/** From a name to the broken objects and the expected lines. */
const FAULTS: Readonly<Record<string, readonly [objects: ObjectsByKind, lines: readonly string[]]>> = {
  'paris has joined, and has no gateway yet': [
    brokenMember((at) => withoutGateways(at, 'paris')),
    ['notice FarGatewayAwaited Cluster paris'],
  ],
  'all others have joined, and have no gateways yet': [
    brokenMember((at) => withoutGateways(at, 'paris', 'tokyo')),
    ['notice FarGatewayAwaited Cluster paris', 'notice FarGatewayAwaited Cluster tokyo'],
  ],
  'paris has no gateway, and a service that only it exports': [
    brokenMember((at) => {
      withoutGateways(at, 'paris')
      const [web] = at('ServiceImport')
      if (web !== undefined) Object.assign(web.status, { clusters: [{ cluster: 'paris' }] })
      at('EndpointSlice').splice(0, 9, importedSlice('web0', 'paris') as Loose)
    }),
    ['down FarGatewayAwaited Cluster paris (ImportsWithoutBackends ×1)'],
  ],
  'paris has no gateway yet, and the Endpoints are not read': [
    withoutEndpoints(brokenMember((at) => withoutGateways(at, 'paris'))),
    ['notice FarGatewayAwaited Cluster paris'],
  ],
  'paris has lost its gateways': [
    brokenMember((at) => {
      withoutGateways(at, 'paris')
      connected(at, 'paris', 'NoLane')
    }),
    ['down NoLane Cluster paris'],
  ],
  'paris has lost its gateways, and so had this cluster': [
    brokenMember((at) => {
      withoutGateways(at, 'paris')
      connected(at, 'paris', 'GatewayStatusStale')
    }),
    ['down NoLane Cluster paris'],
  ],
  'the gateways of paris have just come': [brokenMember((at) => newGateways(at, 29_000)), cutOffLines('notice')],
  'the gateways of paris have come, and no link comes up': [
    brokenMember((at) => newGateways(at, 31_000)),
    cutOffLines('down'),
  ],
  'the gateways of all others have just come': [
    brokenMember((at) => newGateways(at, 29_000, 'paris', 'tokyo')),
    ['notice AllClustersCutOff Cluster milano (LaneConnecting ×8, ClusterCutOff ×2)'],
  ],
  'no gateway here has a link to a gateway of paris': [
    brokenMember((at) => {
      const endpoints = [...at('Endpoint')]
      withoutGateways(at, 'paris')
      at('Endpoint').splice(0, 99, ...endpoints)
    }),
    ['down NoLane Cluster paris'],
  ],
}

/** The gateways of these clusters have been known for `knownMs`, and no link to them has been up. */
function newGateways(at: (kind: keyof ObjectsByKind) => Loose[], knownMs: number, ...of: readonly string[]): void {
  const clusters = of.length === 0 ? ['paris'] : of
  changeLinks(at, ({ cluster }) => clusters.includes(cluster), { ...DOWN, state: 'connecting' })
  const creationTimestamp = new Date(Date.parse(NOW) - knownMs).toISOString()
  for (const { spec, metadata } of at('Endpoint')) {
    if (clusters.includes(String(spec['cluster']))) Object.assign(metadata, { creationTimestamp })
  }
}

/** These clusters have published no Endpoint, so that no gateway here knows of a link to them. */
function withoutGateways(at: (kind: keyof ObjectsByKind) => Loose[], ...clusters: readonly string[]): void {
  const stay = at('Endpoint').filter(({ spec }) => !clusters.includes(String(spec['cluster'])))
  at('Endpoint').splice(0, 99, ...stay)
  for (const { status } of at('Gateway')) {
    status.connections = status.connections.filter(({ cluster }) => !clusters.includes(cluster))
  }
  for (const id of clusters) connected(at, id, 'FarGatewayAwaited')
}

function withoutEndpoints({ Endpoint: _unread, ...others }: ObjectsByKind): ObjectsByKind {
  return others
}

/** Sets the condition as the agent writes it. */
function connected(at: (kind: keyof ObjectsByKind) => Loose[], id: string, reason: string): void {
  const one = at('Cluster').find(({ spec }) => spec['id'] === id)
  const conditions = (one?.status as { conditions?: { type: string }[] } | undefined)?.conditions ?? []
  const others = conditions.filter(({ type }) => type !== 'Connected')
  const said = { type: 'Connected', status: 'False', reason, message: '', lastTransitionTime: '2026-11-25T08:00:00Z' }
  if (one !== undefined) Object.assign(one, { status: { ...one.status, conditions: [...others, said] } })
}

for (const [name, [objects, lines]] of Object.entries(FAULTS)) {
  t.test(name, async (t) => {
    const { health, problems } = diagnoseMember(factSet(objects, healthyReports()))
    t.same(linesOf(problems), lines)
    t.equal(health, lines[0]?.startsWith('down') === true ? 'down' : 'healthy')
  })
}
