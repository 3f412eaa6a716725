/** One imported service: its ServiceImport and the EndpointSlices behind it. Pure. */
import type { ConditionFinding } from '../model/conditions.ts'
import type { ServiceKey } from '../model/ids.ts'
import type { Prefix } from '../model/ip.ts'
import { type ExposedPort, type MergedService, exposedPorts, mergeServices } from '../model/merge-services.ts'
import type { ClusterSpec, EndpointSlice, ImportPort, ServiceImport, ServiceImportType } from '../model/objects.ts'
import type { MemberRecord } from '../model/records.ts'
import type { ConflictVerdict } from '../model/service-conflicts.ts'
import type { Dropped, ExportRecord, ServiceFacts } from './clusterset-view.ts'
import { importedSlice } from './import-slice.ts'
import { type AddressPlan, planAddresses } from './plan-addresses.ts'

export interface ServiceInput {
  readonly key: ServiceKey
  readonly facts: ServiceFacts
  /** Id of this cluster. */
  readonly own: string
  /** This cluster's slices, fresher than what the broker has; undefined when this cluster does not export it. */
  readonly ownSlices: readonly MemberRecord[] | undefined
  /** Cluster facts by id; a cluster that is missing here cannot be translated, so its slices wait. */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  /**
   * Set while a cluster that was part of the service has not been heard of since the broker lost its memory: the
   * ServiceImport stays as it is, with these ports and this type.
   */
  readonly held: { readonly ports: readonly ImportPort[]; readonly type: ServiceImportType } | undefined
  /** Addresses to keep while the broker has not said which are right. */
  readonly previousIps: readonly string[]
  readonly clustersetIpRange: Prefix | undefined
}

export interface ServicePlan {
  /** Undefined while held. */
  readonly serviceImport: ServiceImport | undefined
  /** Condition Ready of the ServiceImport. */
  readonly ready: ConditionFinding
  readonly clusters: readonly string[]
  readonly slices: readonly EndpointSlice[]
  /** Conflicts, if this cluster is one of the exporters. */
  readonly ownVerdict: ConflictVerdict | undefined
  readonly dropped: readonly Dropped[]
}

/** Takes a service with at least one export. */
export function planService(input: ServiceInput): ServicePlan {
  const { facts, own, held } = input
  const merged = mergeServices(
    facts.exports.map(({ key, createdAtMs, body }) => ({ cluster: key.cluster, createdAtMs, body })),
  )
  const dropped: Dropped[] = []
  const addresses = planAddresses(input, merged.spec, dropped)
  const type = held?.type ?? merged.spec.type
  const slices = facts.exports.flatMap((exported) => {
    const cluster = exported.key.cluster
    const ports =
      held === undefined ? (merged.portsOf.get(cluster) ?? []) : exposedPorts(held.ports, exported.body.ports)
    return planSlices(input, exported, { ports, type }, dropped)
  })
  return {
    serviceImport: held === undefined ? importObject(input.key, merged, addresses) : undefined,
    ready: addresses.ready,
    clusters: merged.clusters,
    slices,
    ownVerdict: merged.conflicts.get(own),
    dropped,
  }
}

function importObject(
  key: ServiceKey,
  merged: MergedService,
  { ips, ipFamilies }: Pick<AddressPlan, 'ips' | 'ipFamilies'>,
): ServiceImport {
  const [namespace = '', name = ''] = key.split('/')
  return {
    apiVersion: 'multicluster.x-k8s.io/v1beta1',
    kind: 'ServiceImport',
    metadata: {
      name,
      namespace,
      ...(Object.keys(merged.labels).length === 0 ? {} : { labels: merged.labels }),
      ...(Object.keys(merged.annotations).length === 0 ? {} : { annotations: merged.annotations }),
    },
    spec: { ...merged.spec, ipFamilies, ...(ips === undefined ? {} : { ips }) },
  }
}

function planSlices(
  input: ServiceInput,
  exported: ExportRecord,
  exposure: { readonly ports: readonly ExposedPort[]; readonly type: ServiceImportType },
  dropped: Dropped[],
): EndpointSlice[] {
  const cluster = exported.key.cluster
  const isOwn = cluster === input.own
  const spec = input.clusters.get(cluster)
  if (!isOwn && spec === undefined) {
    dropped.push({ what: `${cluster}/${input.key}`, reason: `nothing is known about cluster ${cluster}'s addresses` })
    return []
  }
  const received = input.facts.slices.filter(({ key }) => key.cluster === cluster)
  const bodies = (isOwn ? input.ownSlices : undefined) ?? received.map(({ key, body }) => ({ name: key.name, body }))
  return bodies.flatMap(({ name, body }) => {
    if (body.kind !== 'EndpointSlice') return []
    const source = { key: input.key, cluster, name, body, spec: isOwn ? undefined : spec }
    return importedSlice(source, exposure, dropped) ?? []
  })
}
