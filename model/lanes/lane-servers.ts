/**
 * Decides which gateway of a cluster serves a lane if several claim it. Pure.
 *
 * It is the newest: a gateway that was replaced may be dead and unable to report it. cameAt() gives the age; of equal
 * ones, the first by name is chosen. During a handover both claim the lane, until the new one is up everywhere.
 */
import type { Endpoint, Gateway, Lease } from '../model.ts'
import { MAX_LANE } from './lane-number.ts'

/**
 * On Endpoints of other clusters: when the broker first received it, RFC 3339. The agent copies the broker's stamp, so
 * that all clusters order the gateways of a cluster alike, whenever they joined.
 */
export const ANNOTATION_PUBLISHED_AT = 'sealane.io/published-at'

/** ECMA-262, 21.4.1.1: the latest time that a Date can represent. */
const LAST_MS = 8.64e15

/** Returns the annotations of a mirrored Endpoint from the broker's stamp; none if the stamp is not usable. */
export function publishedAt(createdAtMs: number): Readonly<Record<string, string>> {
  const isTime = createdAtMs > 0 && createdAtMs <= LAST_MS
  return isTime ? { [ANNOTATION_PUBLISHED_AT]: new Date(createdAtMs).toISOString() } : {}
}

/** Returns all Endpoints of other clusters that claim a lane, the newest first, by laneServerKey(). */
export function laneClaims(endpoints: readonly Endpoint[]): ReadonlyMap<string, readonly [Endpoint, ...Endpoint[]]> {
  const claims = new Map<string, [Endpoint, ...Endpoint[]]>()
  for (const endpoint of [...endpoints].sort(latestFirst)) {
    const key = laneServerKey(endpoint)
    const known = claims.get(key)
    if (known === undefined) claims.set(key, [endpoint])
    else known.push(endpoint)
  }
  return claims
}

export function laneServerKey({ spec }: Endpoint): string {
  return `${spec.lane}/${spec.cluster}`
}

/**
 * Returns the lanes of this cluster's own gateways that are up to `cluster`, by node; nodes without one are left out.
 * If several report the same lane as up, the newest counts: the far end uses no other, so the others are dead or about
 * to notice it. A newest gateway that is not up (yet) does not displace the others. Takes all Gateways and Endpoints of
 * this cluster. A node with an Endpoint on the lane takes precedence over nodes without one. If none has one, all
 * count, because an Endpoint that could not be read may still exist.
 */
export function lanesUp(
  cluster: string,
  gateways: readonly Gateway[],
  ownEndpoints: readonly Endpoint[],
): ReadonlyMap<string, ReadonlySet<number>> {
  const nodesOf = new Map<number, Set<string>>()
  for (const { metadata, status } of gateways) {
    for (const one of status?.connections ?? []) {
      if (one.cluster !== cluster || one.state !== 'up') continue
      nodesOf.set(one.lane, (nodesOf.get(one.lane) ?? new Set()).add(metadata.name))
    }
  }
  const up = new Map<string, Set<number>>()
  for (const [lane, nodes] of nodesOf) {
    const claims = ownEndpoints.filter(({ spec }) => spec.lane === lane && nodes.has(spec.node))
    const last = claims.sort(latestFirst)[0]
    for (const node of last === undefined ? nodes : [last.spec.node])
      up.set(node, (up.get(node) ?? new Set()).add(lane))
  }
  return up
}

function latestFirst(a: Endpoint, b: Endpoint): number {
  return cameAt(b) - cameAt(a) || (a.metadata.name < b.metadata.name ? -1 : 1)
}

/** The broker's stamp; for an Endpoint of this cluster, which has none, its creation time in this cluster's own API. */
function cameAt({ metadata }: Endpoint): number {
  const published = Date.parse(metadata.annotations?.[ANNOTATION_PUBLISHED_AT] ?? '')
  return published || Date.parse(metadata.creationTimestamp ?? '') || 0
}

// The Lease by which the gateways of one cluster agree which of them serves a lane; there is one for each lane number.
// Its holder publishes its end of the lane to other clusters; the other nodes with the same label are standbys.

/** Name of the Lease, in the namespace of the Sealane installation. */
export function laneLeaseName(lane: number): string {
  return `${LANE_LEASE_PREFIX}${lane}`
}

/** Returns the nodes that hold a lane, from the Leases in a cache. */
export function laneHolders(leases: readonly Lease[]): ReadonlySet<string> {
  const ours = leases.filter(({ metadata }) => metadata.name.startsWith(LANE_LEASE_PREFIX))
  return new Set(ours.flatMap(({ spec }) => spec?.holderIdentity || []))
}

/** Returns the lane that a node holds; undefined if it holds none. */
export function laneOfHolder(leases: readonly Lease[], node: string): number | undefined {
  return Array.from({ length: MAX_LANE + 1 }, (_, lane) => lane).find((lane) =>
    leases.some(({ metadata, spec }) => metadata.name === laneLeaseName(lane) && spec?.holderIdentity === node),
  )
}

export const LANE_LEASE_PREFIX = 'sealane-lane-'

/** Leases with what the agent knows about each other cluster. */
export const CLUSTER_LEASE_PREFIX = 'sealane-cluster-'

/** On the Lease, set by its holder: why another node should take over at once. The holder serves until one has. */
export const ANNOTATION_HANDOVER = 'sealane.io/handover'

// Durations of Leases that are not renewed: those of the lanes, and that of the active agent. A Lease contains its own
// duration, so gateways and agents of one cluster may differ while the setting changes.

/** A gateway that restarts recovers its Lease sooner than this, so the lane does not move. */
export const LANE_LEASE_MS = 15_000

/**
 * Valid values instead of LANE_LEASE_MS. With a shorter one, a live holder on a busy node would lose the Lease; with a
 * longer one, other nodes would wait for minutes.
 */
export const LEASE_BOUNDS = { minMs: 3000, maxMs: 60_000 } as const

/** All in milliseconds. A follower takes over from an agent that died after `durationMs` and `retryMs`. */
export interface ElectionTiming {
  readonly durationMs: number
  /** A leader that could not renew for this long gives up, before others take over. */
  readonly renewWithinMs: number
  readonly retryMs: number
}

/** Returns the timing for a cluster with this lane Lease: 10, 7 and 2 s by default. Only imports wait for an agent. */
export function electionTiming(laneLeaseMs: number): ElectionTiming {
  const durationMs = Math.round((laneLeaseMs * 2) / 3)
  return { durationMs, renewWithinMs: Math.round(durationMs * 0.7), retryMs: Math.round(durationMs / 5) }
}
