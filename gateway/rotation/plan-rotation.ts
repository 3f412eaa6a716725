/**
 * When a gateway makes its identity anew, and what it waits for. Pure.
 *
 *   rest ──due──► announce ──all that are up know it──► switch ──► rest
 *                    └──── not all, for a minute ──► postpone ──► announce …
 */
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/** A link of this gateway, as far as it matters here. */
export interface RotatingLink {
  readonly cluster: string
  readonly up: boolean
  /** Its far end is of a release that can follow. */
  readonly follows: boolean
  /** It has said that it knows the next identity. */
  readonly knows: boolean
}

export interface RotationFacts {
  /** Milliseconds of the clock that never jumps. */
  readonly nowMs: number
  /** Of the present identity. */
  readonly ageMs: number
  /** 0: age alone is no reason. */
  readonly maxAgeMs: number
  /** An operator has asked for it, and it has not been done. */
  readonly asked: boolean
  /** An earlier run of the process has begun with it. */
  readonly begun: boolean
  /** Since when it is due; absent: it was not when this was looked at last. */
  readonly dueSinceMs?: number
  /** Since when this end announces; absent: it does not. */
  readonly announcedMs?: number
  /** What it announces has been written. */
  readonly published: boolean
  readonly pausedUntilMs: number
  /** Lane numbers of other gateways of this cluster that announce. */
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

/** Others that begin at the same moment are seen by then. */
export const SETTLE_MS = 2000
/** An Endpoint goes to the broker and to the far ends in a second or two. */
export const KNOWN_WITHIN_MS = 60_000
/** After it was postponed. */
export const POSTPONED_MS = 5 * 60_000
/** For so long one far end can hold it up. */
export const GIVE_UP_MS = 24 * 3_600_000

export function isDue({ asked, begun, ageMs, maxAgeMs }: RotationFacts): boolean {
  return asked || begun || (maxAgeMs > 0 && ageMs >= maxAgeMs)
}

export function planRotation(facts: RotationFacts): RotationStep {
  const { nowMs, announcedMs, pausedUntilMs, others, lane, published } = facts
  if (!isDue(facts)) return { is: 'rest' }
  const first = announcedMs === undefined ? others[0] : others.find((other) => other < lane)
  if (first !== undefined) return wait('OtherGatewayRotates', `the gateway of lane ${first} goes first`)
  const missing = withoutKey(facts)
  if (announcedMs === undefined) return nowMs < pausedUntilMs ? wait('FarEndsWithoutKey', missing) : { is: 'announce' }
  if (!published || nowMs - announcedMs < SETTLE_MS)
    return wait('KeyAnnounced', 'the other clusters learn the next key')
  if (missing === '' || nowMs - (facts.dueSinceMs ?? nowMs) >= GIVE_UP_MS) return { is: 'switch' }
  if (nowMs - announcedMs < KNOWN_WITHIN_MS) return wait('KeyAnnounced', missing)
  return { is: 'postpone', reason: 'FarEndsWithoutKey', message: missing }
}

/** Where no link is up it is not known that anybody could learn it: the broker may be away. */
function withoutKey({ links }: RotationFacts): string {
  const up = links.filter((link) => link.up)
  if (links.length > 0 && up.length === 0) return 'no link is up'
  const clusters = new Set(up.filter(({ follows, knows }) => follows && !knows).map(({ cluster }) => cluster))
  return clusters.size === 0 ? '' : `these do not have the next key yet: ${named(clusters)}`
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
