/**
 * What this process has seen at the places of links: at which one a link was up, how good it was there, and where
 * nothing answered. Only a memory: nothing is sent for it.
 */
import { type AddressPort, formatAddressPort, sameAddressPort } from '../../model/addresses/addresses.ts'
import { type ConnectionState, MAX_LINK_CANDIDATES } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { EndpointChoice } from '../reach/reach.ts'

/** What is known of one place. Times are in milliseconds since 1970. */
export interface PlaceRecord {
  readonly at: AddressPort
  /** The relay at the place when the link was there last: RelayPlace.cluster. Absent: none, as far as was known. */
  readonly relay?: string
  /** When the link was up there last. Absent: never in this process. */
  readonly provenMs?: number
  /** Since when nothing has answered there. Absent: it answers, or it was not called. */
  readonly failed?: { readonly sinceMs: number; readonly reason: ReasonCode }
  /** What the probes of the link showed there last. Absent: nothing. */
  readonly measured?: PlaceFigures & { readonly atMs: number }
}

export interface PlaceFigures {
  readonly rttMs?: number
  /** Share, 0 to 1. */
  readonly loss?: number
  readonly mtu?: number
}

/** A link as it is now. */
export interface PlacedLink {
  /** linkKey(). */
  readonly key: string
  readonly state: ConnectionState
  /** Where its packets go. */
  readonly at: AddressPort | undefined
  /** The relay at that place. Absent: none is known. */
  readonly relay?: string
  readonly choice: Pick<EndpointChoice, 'how' | 'at'>
  /** Absent while it is not measured, as when it sleeps. */
  readonly figures?: PlaceFigures
}

/** A call without an answer for so long has failed: less than the turn of a candidate and of a relay. */
export const PLACE_FAILS_MS = 1000

interface Memory {
  readonly places: Map<string, PlaceRecord>
  /** The place that is called now, since when, in milliseconds of the monotonic clock. */
  calling: (Pick<PlaceRecord, 'at' | 'relay'> & { readonly sinceMs: number }) | undefined
}

export class LinkPlaces {
  readonly #links = new Map<string, Memory>()

  /** Takes all links; others are forgotten. `nowMs` is in milliseconds since 1970. */
  look(links: readonly PlacedLink[], nowMs: number, monotonicMs: number): void {
    const known = new Set(links.map(({ key }) => key))
    for (const key of this.#links.keys()) if (!known.has(key)) this.#links.delete(key)
    for (const link of links) {
      const memory = this.#links.get(link.key) ?? { places: new Map<string, PlaceRecord>(), calling: undefined }
      this.#links.set(link.key, memory)
      lookAt(memory, link, nowMs, monotonicMs)
    }
  }

  /** By formatAddressPort() of the place. */
  of(key: string): ReadonlyMap<string, PlaceRecord> {
    return this.#links.get(key)?.places ?? new Map<string, PlaceRecord>()
  }
}

function lookAt(memory: Memory, link: PlacedLink, nowMs: number, monotonicMs: number): void {
  const { state, at, choice, figures } = link
  const relay = link.relay === undefined ? {} : { relay: link.relay }
  // While another place is tried the link counts as up, whatever answers there.
  const isTried = choice.how === 'try' && sameAddressPort(choice.at, at)
  const called = at !== undefined && (state !== 'up' || isTried) ? at : undefined
  const before = memory.calling
  if (before !== undefined && monotonicMs - before.sinceMs >= PLACE_FAILS_MS) {
    const answers = called === undefined && sameAddressPort(at, before.at)
    if (!answers) setFailed(memory, before, nowMs)
  }
  const goesOn = before !== undefined && sameAddressPort(before.at, called)
  const sinceMs = goesOn ? before.sinceMs : monotonicMs
  memory.calling = called === undefined ? undefined : { ...(goesOn ? before : {}), ...relay, at: called, sinceMs }
  if (called !== undefined || at === undefined || state !== 'up') return
  const last = memory.places.get(formatAddressPort(at))?.measured
  const measured = figures === undefined ? last : { ...figures, atMs: nowMs }
  keep(memory, { at, ...relay, provenMs: nowMs, ...(measured === undefined ? {} : { measured }) })
}

function setFailed(memory: Memory, { at, relay }: Pick<PlaceRecord, 'at' | 'relay'>, nowMs: number): void {
  const known = memory.places.get(formatAddressPort(at)) ?? { at }
  const record = relay === undefined ? known : { ...known, relay }
  if (record.failed !== undefined) return
  const reason = record.provenMs === undefined ? 'LaneConnecting' : 'LaneProbeTimeout'
  keep(memory, { ...record, failed: { sinceMs: nowMs, reason } })
}

/** The one that was looked at longest ago makes room. */
function keep({ places }: Memory, record: PlaceRecord): void {
  const name = formatAddressPort(record.at)
  places.delete(name)
  places.set(name, record)
  const [oldest] = places.keys()
  if (places.size > MAX_LINK_CANDIDATES && oldest !== undefined) places.delete(oldest)
}
