/**
 * Which of several gateways of one cluster serves a lane that more than one of them claims. Pure.
 *
 * The newest: a gateway that was replaced may be dead and cannot say so. "Newest" is by the time of cameAt(),
 * then the first by name. While a lane is handed over both claim it, until the newcomer is up everywhere.
 */
import type { Endpoint, Gateway } from '../objects.ts'

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
