/**
 * Plans which clusters are alive (KEP-1645 "EndpointSlice", on stale endpoints: leases per source cluster). The agent
 * renews a cluster's Lease while contact with the cluster is confirmed. It lets the Lease expire only when the broker
 * reports that the cluster has had no connection for the whole lease duration. A cluster that is cut off itself gets no
 * such report, and so removes nothing. An expired Lease has no holder until the cluster is in contact again, so a
 * restart does not lose this state. Pure.
 */
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY, LABEL_SOURCE_CLUSTER, type Lease } from '../../model/model.ts'
import { CLUSTER_LEASE_PREFIX } from '../../model/lanes/lanes.ts'

export interface ContactWorld {
  /** Milliseconds since 1970. */
  readonly nowMs: number
  readonly durationMs: number
  readonly namespace: string
  /** All members except this one. */
  readonly clusters: readonly string[]
  /** All Leases in the local API, including those of other programs. */
  readonly leases: readonly Lease[]
  /**
   * Maps each member without a connection to the broker to the milliseconds it has been without. Undefined while the
   * broker has not reported.
   */
  readonly silent: ReadonlyMap<string, number> | undefined
  /** Clusters that a lane of this cluster is connected to now. */
  readonly connected: ReadonlySet<string>
}

export interface ContactPlan {
  readonly apply: readonly Lease[]
  readonly remove: readonly Lease[]
  /** Sorted. */
  readonly expired: readonly string[]
}

/** A Lease is renewed this often in its lifetime, not at every sign of life. */
const RENEWALS_PER_LIFETIME = 10

export function planContact(world: ContactWorld): ContactPlan {
  const present = new Map(world.leases.filter(isOurs).map((lease) => [lease.metadata.name, lease]))
  const apply: Lease[] = []
  const expired: string[] = []
  for (const cluster of [...world.clusters].sort()) {
    const lease = present.get(leaseName(cluster))
    present.delete(leaseName(cluster))
    const { next, dead } = validate(world, cluster, lease)
    if (next !== undefined) apply.push(next)
    if (dead) expired.push(cluster)
  }
  return { apply, remove: [...present.values()], expired }
}

function validate(world: ContactWorld, cluster: string, lease: Lease | undefined): { next?: Lease; dead: boolean } {
  const { nowMs, durationMs, silent, connected } = world
  const heard = connected.has(cluster) || (silent !== undefined && !silent.has(cluster))
  const released = lease !== undefined && (lease.spec?.holderIdentity ?? '') === ''
  const renewedMs = Date.parse(lease?.spec?.renewTime ?? '')
  const ageMs = Number.isNaN(renewedMs) ? Infinity : nowMs - renewedMs
  if (heard) {
    // A renewal time in the future was written with a wrong clock.
    const due = ageMs < 0 || ageMs >= durationMs / RENEWALS_PER_LIFETIME
    return due || released ? { next: leaseObject(world, cluster, lease), dead: false } : { dead: false }
  }
  // The lease duration starts when the cluster is first without contact.
  if (lease === undefined) return { next: leaseObject(world, cluster, lease), dead: false }
  if (released) return { dead: true }
  const dead = ageMs >= durationMs && (silent?.get(cluster) ?? 0) >= durationMs
  return dead ? { next: releasedLease(lease), dead } : { dead }
}

function leaseObject(world: ContactWorld, cluster: string, before: Lease | undefined): Lease {
  const now = microTime(world.nowMs)
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: {
      name: leaseName(cluster),
      namespace: world.namespace,
      labels: { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE, [LABEL_SOURCE_CLUSTER]: cluster },
    },
    spec: {
      holderIdentity: cluster,
      leaseDurationSeconds: Math.ceil(world.durationMs / 1000),
      acquireTime: before?.spec?.holderIdentity === cluster ? (before.spec.acquireTime ?? now) : now,
      renewTime: now,
    },
  }
}

function releasedLease({ apiVersion, kind, metadata, spec }: Lease): Lease {
  const { name, namespace, labels } = metadata
  const { holderIdentity: _holder, ...rest } = spec ?? {}
  return {
    apiVersion,
    kind,
    metadata: { name, ...(namespace === undefined ? {} : { namespace }), ...(labels === undefined ? {} : { labels }) },
    spec: rest,
  }
}

export function isOurs({ metadata }: Lease): boolean {
  return (
    metadata.name.startsWith(CLUSTER_LEASE_PREFIX) && metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
  )
}

function leaseName(cluster: string): string {
  return `${CLUSTER_LEASE_PREFIX}${cluster}`
}

/** Formats milliseconds since 1970 as metav1.MicroTime. */
function microTime(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '000Z')
}
