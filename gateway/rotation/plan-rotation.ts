/**
 * Decides when a gateway replaces its identity, and what it waits for. Pure.
 *
 *   rest ──due──► announce ──all that are up know it──► switch ──► rest
 *                    └──── not all, for a minute ──► postpone ──► announce …
 */
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/** The facts about a link of this gateway that matter for a rotation. */
export interface RotatingLink {
  readonly cluster: string
  readonly up: boolean
  /** The release of its far end supports a rotation. */
  readonly follows: boolean
  /** The far end has confirmed that it knows the next identity. */
  readonly knows: boolean
}

export interface RotationFacts {
  /** The present time in milliseconds of the monotonic clock. */
  readonly nowMs: number
  /** Age of the present identity. */
  readonly ageMs: number
  /** Age at which a rotation is due. 0: never because of the age. */
  readonly maxAgeMs: number
  /** An operator has requested a rotation that has not been done. */
  readonly asked: boolean
  /** An earlier process has begun a rotation. */
  readonly begun: boolean
  /** Since when it is due. Absent if it was not due at the last check. */
  readonly dueSinceMs?: number
  /** Since when this node announces its next identity. Absent if it does not. */
  readonly announcedMs?: number
  /** The announced identity is written to the Endpoint. */
  readonly published: boolean
  readonly pausedUntilMs: number
  /** Lane numbers of other gateways of this cluster that announce a next identity. */
  readonly others: readonly number[]
  readonly lane: number
  readonly links: readonly RotatingLink[]
}

export type RotationStep =
  { readonly is: 'rest' } | { readonly is: 'announce' } | { readonly is: 'switch' } | RotationWait

export interface RotationWait {
  readonly is: 'wait' | 'postpone'
  readonly reason: ReasonCode
  readonly message: string
}

/** Other gateways that begin at the same moment are visible by then. */
export const SETTLE_MS = 2000
/** An Endpoint reaches the broker and the far ends within a second or two. */
export const KNOWN_WITHIN_MS = 60_000
/** Pause after a rotation was postponed. */
export const POSTPONED_MS = 5 * 60_000
/** How long one far end can delay the rotation. */
export const GIVE_UP_MS = 24 * 3_600_000

export function isDue({ asked, begun, ageMs, maxAgeMs }: RotationFacts): boolean {
  return asked || begun || (maxAgeMs > 0 && ageMs >= maxAgeMs)
}

export function planRotation(facts: RotationFacts): RotationStep {
  const { nowMs, announcedMs, pausedUntilMs, others, lane, published } = facts
  if (!isDue(facts)) return { is: 'rest' }
  const first = announcedMs === undefined ? others[0] : others.find((other) => other < lane)
  if (first !== undefined) return wait('OtherGatewayRotates', `the gateway of lane ${first} rotates its key first`)
  const missing = withoutKey(facts)
  if (announcedMs === undefined) return nowMs < pausedUntilMs ? wait('FarEndsWithoutKey', missing) : { is: 'announce' }
  if (!published || nowMs - announcedMs < SETTLE_MS)
    return wait('KeyAnnounced', 'waiting until the other clusters know the next key')
  if (missing === '' || nowMs - (facts.dueSinceMs ?? nowMs) >= GIVE_UP_MS) return { is: 'switch' }
  if (nowMs - announcedMs < KNOWN_WITHIN_MS) return wait('KeyAnnounced', missing)
  return { is: 'postpone', reason: 'FarEndsWithoutKey', message: missing }
}

/** If no link is up, no far end may be able to learn the next identity, because the broker may be unreachable. */
function withoutKey({ links }: RotationFacts): string {
  const up = links.filter((link) => link.up)
  if (links.length > 0 && up.length === 0) return 'no link is up'
  const clusters = new Set(up.filter(({ follows, knows }) => follows && !knows).map(({ cluster }) => cluster))
  return clusters.size === 0 ? '' : `clusters that do not have the next key yet: ${named(clusters)}`
}

const MOST_NAMES = 10

function named(clusters: ReadonlySet<string>): string {
  const names = [...clusters].sort()
  const more = names.length - MOST_NAMES
  return `${names.slice(0, MOST_NAMES).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

function wait(reason: ReasonCode, message: string): RotationStep {
  return { is: 'wait', reason, message }
}
