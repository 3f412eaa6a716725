/**
 * What gateways state about relays, as capabilities of their Endpoints: a relay its load, and a gateway that seeks relays
 * how far it is from each. Both ends of a link read the same statements, so both come to the same order of relays. Pure.
 */

/** The round trips of one gateway to relays, by relayMark(), in whole milliseconds, and its own load as a relay. */
export interface RelayCosts {
  readonly rttMs: ReadonlyMap<string, number>
  /** From 0 (idle) to 1 (full). Absent: it states none. */
  readonly load?: number
}

/**
 * A gateway states its round trip to so many relays: the nearest ones. Two ends that are far apart state the same ones only
 * if there are few others. MAX_CAPABILITIES bounds the number.
 */
export const MAX_RELAY_RTTS = 16
/** Longer ones are stated as this. */
export const MAX_RELAY_RTT_MS = 9999
/** The load is stated in tenths. */
const LOAD_STEPS = 10
const LOAD_PREFIX = 'relay-load-'
const RTT_PREFIX = 'relay-rtt-'
const MARK_LENGTH = 16

/** The name of a relay in statements, by its identity (a WireGuard key in base64). */
export function relayMark(identity: string): string {
  return identity.slice(0, MARK_LENGTH)
}

/** Capabilities that state these costs, sorted; of more than MAX_RELAY_RTTS round trips, the shortest. */
export function encodeRelayCosts({ rttMs, load }: RelayCosts): readonly string[] {
  const nearest = [...rttMs].sort(([a, x], [b, y]) => x - y || (a < b ? -1 : 1)).slice(0, MAX_RELAY_RTTS)
  const rtts = nearest.map(([mark, ms]) => `${RTT_PREFIX}${mark}-${Math.min(MAX_RELAY_RTT_MS, Math.round(ms))}`)
  const steps = load === undefined ? undefined : Math.round(Math.min(1, Math.max(0, load)) * LOAD_STEPS)
  return [...(steps === undefined ? [] : [`${LOAD_PREFIX}${steps}`]), ...rtts.sort()]
}

/**
 * What these capabilities state. Capabilities of another form state nothing; of several for one relay, the first counts.
 * Never throws.
 */
export function decodeRelayCosts(capabilities: readonly string[]): RelayCosts {
  const rttMs = new Map<string, number>()
  let load: number | undefined
  for (const one of capabilities) {
    const [, steps] = /^relay-load-(\d|10)$/.exec(one) ?? []
    if (steps !== undefined) load ??= Number(steps) / LOAD_STEPS
    const [, mark, ms] = /^relay-rtt-([A-Za-z0-9+/]{16})-(\d{1,4})$/.exec(one) ?? []
    if (mark === undefined || rttMs.has(mark) || rttMs.size >= MAX_RELAY_RTTS) continue
    rttMs.set(mark, Number(ms))
  }
  return { rttMs, ...(load === undefined ? {} : { load }) }
}

/** Whether any of the capabilities is a statement of costs. */
export function statesRelayCosts(capabilities: readonly string[]): boolean {
  return capabilities.some((one) => one.startsWith(LOAD_PREFIX) || one.startsWith(RTT_PREFIX))
}

/** A full relay counts as farther by so much: the most that a relay gains if it states a load of zero. */
export const FULL_LOAD_MS = 50

/**
 * How dear a relay is for a link, in milliseconds: the round trips of both ends to it, as the ends themselves state
 * them, and its load. Undefined if an end states none.
 */
export function relayCostMs(relay: string, one: RelayCosts, other: RelayCosts, load = 0): number | undefined {
  const mark = relayMark(relay)
  const [a, b] = [one.rttMs.get(mark), other.rttMs.get(mark)]
  return a === undefined || b === undefined ? undefined : a + b + FULL_LOAD_MS * load
}

/** A cost has to differ by so much, and by this share, to count as another one. */
export const COST_DIFFERS_MS = 10
export const COST_DIFFERS_SHARE = 0.2

/** Whether `ms` is less than `thanMs` by enough to matter. */
export function isClearlyLess(ms: number, thanMs: number): boolean {
  return thanMs - ms >= COST_DIFFERS_MS && ms <= thanMs * (1 - COST_DIFFERS_SHARE)
}

/**
 * Costs that differ little have the same class, so that all relays which are about as good get some links. Each class is
 * wider than that before by COST_DIFFERS_SHARE, and the first is COST_DIFFERS_MS wide.
 */
export function costClass(ms: number): number {
  const scale = COST_DIFFERS_MS / COST_DIFFERS_SHARE
  return Math.floor(Math.log1p(ms / scale) / Math.log1p(COST_DIFFERS_SHARE) + 1e-9)
}
