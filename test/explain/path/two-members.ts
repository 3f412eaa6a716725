/** Two members whose pods have the same addresses, so that gateways translate: milano calls db.shop of paris. */
import type { FactSet } from '../../../explain/facts/fact.ts'
import { explainPath } from '../../../explain/path/explain-path.ts'
import type { PathExplanation } from '../../../explain/path/document.ts'
import type { PathObjects, PathSide } from '../../../explain/path/member-view.ts'
import { parseFrom, parseTo } from '../../../explain/path/path-ends.ts'
import type { AccessPolicy, EndpointSlice, Pod } from '../../../model/objects.ts'
import { type ObjectsByKind, SELF, copyOf, factSet, healthyObjects } from '../../support/objects/member-facts.ts'
import { importObject, namespaceObject, exportObject, sliceObject } from '../../support/objects/service-objects.ts'
import type { Loose } from '../broken-member.ts'

export type At = (kind: keyof ObjectsByKind) => Loose[]

const RANGES: Readonly<Record<string, string>> = { [SELF]: '244.1.0.0/16', paris: '244.2.0.0/16' }

/** The objects that facts carry, of one of the two. */
export function memberObjects(id: typeof SELF | 'paris'): ObjectsByKind {
  const objects = copyOf(healthyObjects({ others: ['paris'], services: 0 }))
  const text = JSON.stringify(objects)
  // The healthy member is milano: paris has the same with the ids exchanged.
  const own = id === SELF ? objects : (JSON.parse(swapped(text)) as ObjectsByKind)
  for (const one of (own.Cluster ?? []) as Loose[]) {
    const { id: cluster = '' } = one.spec as { id?: string }
    Object.assign(one.spec, {
      podCIDRs: ['10.42.0.0/16'],
      globalCIDRs: [RANGES[cluster] ?? ''],
      index: cluster === SELF ? 1 : 2,
    })
  }
  for (const [i, node] of ((own.Node ?? []) as Loose[]).entries()) {
    node.spec = { podCIDRs: [`10.42.${i}.0/24`] }
    Object.assign(node.status, { addresses: [{ type: 'InternalIP', address: `192.0.2.${i + 1}` }] })
  }
  for (const [i, agent] of ((own.RouteAgent ?? []) as Loose[]).entries())
    agent.status['podRanges'] = [`10.42.${i}.0/24`]
  own.ServiceImport = [{ ...copyOf(IMPORT), status: { clusters: [{ cluster: 'paris' }] } }]
  own.ServiceExport = id === SELF ? [] : [{ ...exportObject({ name: 'db' }), status: { conditions: copyOf(EXPORTED) } }]
  own.Service = []
  own.EndpointSlice = [importedSlice()]
  return own
}

function swapped(text: string): string {
  return text.replaceAll(SELF, '%').replaceAll('paris', SELF).replaceAll('%', 'paris')
}

const EXPORTED = ['Valid', 'Ready'].map((type) => ({
  ...{ type, status: 'True', reason: type === 'Valid' ? 'Valid' : 'Exported', message: '' },
  lastTransitionTime: '2026-11-25T10:00:00Z',
}))

const IMPORT = importObject(
  { name: 'db' },
  { type: 'ClusterSetIP', ips: ['245.0.0.9'], ports: [{ port: 5432, protocol: 'TCP' }] },
)

/** The slice of db that paris publishes: one pod is ready, one is not. */
export function importedSlice(annotations: Readonly<Record<string, string>> = {}): EndpointSlice {
  const labels = {
    'multicluster.kubernetes.io/service-name': 'db',
    'multicluster.kubernetes.io/source-cluster': 'paris',
  }
  const endpoints = [
    { addresses: ['244.2.2.5'], conditions: { ready: true } },
    { addresses: ['244.2.2.6'], conditions: { ready: false } },
  ]
  return sliceObject({ name: 'db-paris', labels, annotations }, { endpoints, ports: [{ port: 5433, protocol: 'TCP' }] })
}

/** What a command reads beside the facts. */
export function pathObjects(id: typeof SELF | 'paris', policies: readonly AccessPolicy[] = []): PathObjects {
  const own = sliceObject(
    { name: 'db-1', labels: { 'kubernetes.io/service-name': 'db' } },
    { endpoints: [{ addresses: ['10.42.2.5'], nodeName: 'w0' }], ports: [{ port: 5433, protocol: 'TCP' }] },
  )
  const pod: Pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'front-0', namespace: 'shop' },
    spec: { nodeName: 'w0' },
    status: { phase: 'Running', podIP: '10.42.2.7' },
  }
  return {
    EndpointSlice: id === SELF ? [importedSlice()] : [importedSlice(), own],
    ...{ Service: [], Pod: id === SELF ? [pod] : [], Namespace: [namespaceObject('shop')] },
    ...{ AccessPolicy: policies, ClusterAccessPolicy: [], TrafficPolicy: [], ClusterTrafficPolicy: [] },
  }
}

export interface TwoInit {
  readonly from?: string
  readonly to?: string
  /** Changes what is known of milano, and of paris. */
  readonly here?: (at: At) => void
  readonly there?: (at: At) => void
  readonly facts?: (set: FactSet) => FactSet
  readonly objects?: PathObjects
  readonly farObjects?: PathObjects
  /** Whether paris is asked. */
  readonly asks?: boolean
}

/** Explains the call of front-0 to db.shop, unless the init says otherwise. */
export function explained(init: TwoInit = {}): PathExplanation {
  const {
    from = 'shop/front-0',
    to = 'db.shop:5432',
    here,
    there,
    facts = (set: FactSet): FactSet => set,
    asks = true,
  } = init
  const own = changed(memberObjects(SELF), here)
  const far = changed(memberObjects('paris'), there)
  const sides: readonly PathSide[] = [{ facts: factSet(far), objects: init.farObjects ?? pathObjects('paris') }]
  const found = explainPath(
    { from: parseFrom(from), to: parseTo(to) },
    { here: { facts: facts(factSet(own)), objects: init.objects ?? pathObjects(SELF) }, far: asks ? sides : [] },
  )
  if ('wrong' in found) throw new Error(found.wrong)
  return found
}

function changed(objects: ObjectsByKind, change: ((at: At) => void) | undefined): ObjectsByKind {
  change?.((kind) => (objects[kind] ?? []) as Loose[])
  return objects
}

/** `link LaneProbeTimeout`, or the outcome of a call that does not end. */
export function endOf({ outcome, failing }: PathExplanation): string {
  return failing === undefined ? outcome : `${failing.station} ${failing.reason ?? '-'}`
}
