/** One imported service: its ServiceImport and the EndpointSlices behind it. Pure. */
import { podFamilies } from '../model/addresses/addressing.ts'
import type { ConditionFinding } from '../model/conditions.ts'
import type { IpFamily } from '../model/services/export-precedence.ts'
import type { ServiceKey } from '../model/ids.ts'
import type { Prefix } from '../model/addresses/ip.ts'
import { type ExposedPort, type MergedService, exposedPorts, mergeServices } from '../model/services/merge-services.ts'
import type {
  ClusterSpec,
  EndpointSlice,
  ServiceImport,
  ServiceImportSpec,
  ServiceImportType,
} from '../model/objects.ts'
import type { ConflictFinding } from '../model/services/service-conflicts.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../model/spec-constants.ts'
import type { PublishedSlice } from './export/plan-exports.ts'
import type { Dropped, ExportRecord, ServiceFacts } from './import/clusterset-view.ts'
import { importedSlice } from './import/import-slice.ts'
import { KeyedMemo } from './keyed-memo.ts'
import { type AddressPlan, planAddresses } from './import/plan-addresses.ts'

export interface ServiceInput {
  readonly key: ServiceKey
  readonly facts: ServiceFacts
  /** Id of this cluster. */
  readonly own: string
  /** Of the addresses that this cluster's own pods have. */
  readonly ownFamilies: readonly IpFamily[]
  /** Pod CIDRs of this cluster: no endpoint of its own is anywhere else, whatever the broker says. */
  readonly ownPods: readonly string[]
  /** This cluster's slices, fresher than what the broker has; undefined when this cluster does not export it. */
  readonly ownSlices: readonly PublishedSlice[] | undefined
  /** Cluster facts by id; a cluster that is missing here cannot be translated, so its slices wait. */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  /**
   * Set while a cluster that was part of the service has not been shown since the broker lost its memory: the
   * ServiceImport stays as it is, with these ports, this type and these families.
   */
  readonly held: Pick<ServiceImportSpec, 'ports' | 'type' | 'ipFamilies'> | undefined
  /** Addresses to keep while the broker has not said which are right. */
  readonly previousIps: readonly string[]
  readonly clustersetIpRange: Prefix | undefined
  /** Clusters taken as dead: their endpoints are left out. */
  readonly expired: ReadonlySet<string>
}

/** One slice and what was left out of it. */
interface PlannedSlice {
  readonly slice: EndpointSlice | undefined
  readonly dropped: readonly Dropped[]
}

/** Slices of one service as they came out last time: of 5,000 endpoints one changes, and 49 slices stay. */
export type SliceMemo = KeyedMemo<PlannedSlice>

export interface ServicePlan {
  /** Undefined while held. */
  readonly serviceImport: ServiceImport | undefined
  /** Condition Ready of the ServiceImport. */
  readonly ready: ConditionFinding
  readonly clusters: readonly string[]
  readonly slices: readonly EndpointSlice[]
  /** Conflicts, if this cluster is one of the exporters. */
  readonly ownFinding: ConflictFinding | undefined
  readonly dropped: readonly Dropped[]
}

/** Takes a service with at least one export and, to save work, what the last plan of this service remembers. */
export function planService(input: ServiceInput, memo: SliceMemo = new KeyedMemo()): ServicePlan {
  const { facts, own, held } = input
  const merged = mergeServices(
    facts.exports.map(({ key: { cluster }, createdAtMs, body }) => {
      return { cluster, createdAtMs, body, carried: carriedFamilies(input, cluster) }
    }),
  )
  const dropped: Dropped[] = []
  const addresses = planAddresses(input, merged.spec, dropped)
  const type = held?.type ?? merged.spec.type
  const families = held?.ipFamilies ?? addresses.usable
  const slices = facts.exports.flatMap((exported) => {
    const cluster = exported.key.cluster
    const ports =
      held === undefined ? (merged.portsOf.get(cluster) ?? []) : exposedPorts(held.ports, exported.body.ports)
    return planSlices({ input, memo, dropped }, exported, { ports, type, families })
  })
  memo.endRound()
  return {
    serviceImport: held === undefined ? importObject(input.key, merged, addresses) : undefined,
    ready: addresses.ready,
    clusters: merged.clusters,
    slices,
    ownFinding: merged.conflicts.get(own),
    dropped,
  }
}

/** Undefined while nothing is known about the cluster. */
function carriedFamilies({ own, ownFamilies, clusters }: ServiceInput, id: string): readonly IpFamily[] | undefined {
  if (id === own) return ownFamilies
  const spec = clusters.get(id)
  return spec === undefined ? undefined : podFamilies(spec)
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
      // Ours by this label, whatever an exporter says.
      labels: { ...merged.labels, [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
      ...(Object.keys(merged.annotations).length === 0 ? {} : { annotations: merged.annotations }),
    },
    spec: { ...merged.spec, ipFamilies, ...(ips === undefined ? {} : { ips }) },
  }
}

interface SlicePlanning {
  readonly input: ServiceInput
  readonly memo: SliceMemo
  readonly dropped: Dropped[]
}

function planSlices(
  { input, memo, dropped }: SlicePlanning,
  exported: ExportRecord,
  exposure: {
    readonly ports: readonly ExposedPort[]
    readonly type: ServiceImportType
    readonly families: readonly IpFamily[]
  },
): EndpointSlice[] {
  const cluster = exported.key.cluster
  const isOwn = cluster === input.own
  if (!isOwn && input.expired.has(cluster)) return []
  const spec = input.clusters.get(cluster)
  if (!isOwn && spec === undefined) {
    const message = `nothing is known about cluster ${cluster}'s addresses`
    dropped.push({ what: `${cluster}/${input.key}`, reason: 'ClusterUnknown', message })
    return []
  }
  const received = input.facts.slices.filter(({ key }) => key.cluster === cluster)
  const exposed = JSON.stringify(exposure.ports)
  const bodies = (isOwn ? input.ownSlices : undefined) ?? received.map(({ key, body }) => ({ name: key.name, body }))
  return bodies.flatMap(({ name, body }) => {
    // DNS would give addresses that no pod here can use.
    if (!exposure.families.includes(body.addressType)) return []
    const inside = isOwn ? input.ownPods : (spec?.podCIDRs ?? [])
    const source = { key: input.key, cluster, name, body, inside, spec: isOwn ? undefined : spec }
    const planned = memo.get(`${cluster}/${name}`, [body, source.spec, inside, exposed, exposure.type], () => {
      const left: Dropped[] = []
      return { slice: importedSlice(source, exposure, left), dropped: left }
    })
    dropped.push(...planned.dropped)
    return planned.slice ?? []
  })
}
