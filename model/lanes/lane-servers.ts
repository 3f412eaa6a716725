/**
 * Which of several gateways of one cluster serves a lane that more than one of them claims. Pure.
 *
 * The newest: a gateway that was replaced may be dead and cannot say so. "Newest" is by the time of cameAt(),
 * then the first by name. While a lane is handed over both claim it, until the newcomer is up everywhere.
 */
import type { Endpoint, Gateway, Lease } from '../model.ts'
import { MAX_LANE } from './lane-number.ts'

/**
 * On Endpoints of other clusters: when the broker first had it, RFC 3339. The agent writes it from the broker's stamp,
 * so that all clusters order the gateways of one alike, whenever they joined.
 */
export const ANNOTATION_PUBLISHED_AT = 'sealane.io/published-at'

/** ECMA-262, 21.4.1.1: the last time that a date can say. */
const LAST_MS = 8.64e15

/** Annotations of a mirrored Endpoint. Takes the broker's stamp; without a usable one there are none. */
export function publishedAt(createdAtMs: number): Readonly<Record<string, string>> {
  const isTime = createdAtMs > 0 && createdAtMs <= LAST_MS
  return isTime ? { [ANNOTATION_PUBLISHED_AT]: new Date(createdAtMs).toISOString() } : {}
}

/** For Endpoints of the other clusters: all that claim a lane, the newest first, by laneServerKey(). */
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
 * For this cluster's own gateways: lanes that are up to `cluster`, by node; nodes without one are left out. Of several
 * that report one lane as up the newest counts: the far end calls no other, so the others are dead or about to see it.
 * A newest that is not up (yet) takes nothing from the others. Takes all Gateways and Endpoints of this cluster. A node
 * without an Endpoint on the lane gives way to one that has it; while none has, all count, because an Endpoint that
 * could not be read need not be gone.
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

/** The broker's stamp; for an Endpoint of this cluster, which has none, when this cluster's own API got it. */
function cameAt({ metadata }: Endpoint): number {
  const published = Date.parse(metadata.annotations?.[ANNOTATION_PUBLISHED_AT] ?? '')
  return published || Date.parse(metadata.creationTimestamp ?? '') || 0
}

// The Lease by which the gateways of one cluster agree on who serves a lane: each lane number has one. Its holder
// publishes its end of the lane to the others; the other nodes with the same label stand by.

/** Name of the Lease, in the namespace that Sealane is installed in. */
export function laneLeaseName(lane: number): string {
  return `${LANE_LEASE_PREFIX}${lane}`
}

/** Nodes that hold a lane, by the Leases that a cache has. */
export function laneHolders(leases: readonly Lease[]): ReadonlySet<string> {
  const ours = leases.filter(({ metadata }) => metadata.name.startsWith(LANE_LEASE_PREFIX))
  return new Set(ours.flatMap(({ spec }) => spec?.holderIdentity || []))
}

/** The lane that a node holds; undefined: none. */
export function laneOfHolder(leases: readonly Lease[], node: string): number | undefined {
  return Array.from({ length: MAX_LANE + 1 }, (_, lane) => lane).find((lane) =>
    leases.some(({ metadata, spec }) => metadata.name === laneLeaseName(lane) && spec?.holderIdentity === node),
  )
}

export const LANE_LEASE_PREFIX = 'sealane-lane-'

/** Beside them: what the agent knows of each other cluster. */
export const CLUSTER_LEASE_PREFIX = 'sealane-cluster-'

/** On the Lease, by its holder: why another node should take it at once. The holder serves until one has. */
export const ANNOTATION_HANDOVER = 'sealane.io/handover'

// How long Leases last that are not renewed: of the lane of a gateway, and of the agent that acts. A Lease says it
// itself, so gateways and agents of one cluster may differ while the setting changes.

/** A gateway that is started again has its Lease back sooner: nothing changes hands then. */
export const LANE_LEASE_MS = 15_000

/**
 * What may be chosen instead of LANE_LEASE_MS. With a shorter one, a holder on a busy node would lose it while it lives;
 * with a longer one, others would wait for minutes.
 */
export const LEASE_BOUNDS = { minMs: 3000, maxMs: 60_000 } as const

/** Milliseconds. Until a follower takes over from an agent that died: `durationMs` and `retryMs`. */
export interface ElectionTiming {
  readonly durationMs: number
  /** A leader that could not renew for so long gives up, before others take over. */
  readonly renewWithinMs: number
  readonly retryMs: number
}

/** For a cluster whose lanes have such a Lease: 10, 7 and 2 s by default. Nothing but imports waits for an agent. */
export function electionTiming(laneLeaseMs: number): ElectionTiming {
  const durationMs = Math.round((laneLeaseMs * 2) / 3)
  return { durationMs, renewWithinMs: Math.round(durationMs * 0.7), retryMs: Math.round(durationMs / 5) }
}
