/** The ways by which the far end of a link may be reached: used, proven, failed or untried, for the status. Pure. */
import { type AddressPort, formatAddressPort, parseAddress, sameAddressPort } from '../../model/addresses/addresses.ts'
import {
  type ConnectionState,
  type LinkCandidate,
  MAX_CANDIDATE_NOTE,
  MAX_LINK_CANDIDATES,
  fitText,
  printable,
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { PlannedLink } from '../links/links.ts'
import { type RelayTrip, type WebRelayView, isRelayPlace, isWebPlace } from '../reach/reach.ts'
import type { PlaceFigures, PlaceRecord } from './link-places.ts'

export interface LinkCandidatesInit {
  readonly planned: Pick<PlannedLink, 'candidates' | 'relayPlaces' | 'portMapped' | 'via'>
  readonly state: ConnectionState
  /** Where packets of the link go. */
  readonly at: AddressPort | undefined
  /** The relay at that place. Absent: none. */
  readonly usingRelay?: string
  /** What the probes of the link show now. */
  readonly figures: PlaceFigures
  /** LinkPlaces.of(). */
  readonly places: ReadonlyMap<string, PlaceRecord>
  /** Where probes through the NATs of both ends have shown that the far end can be called. */
  readonly punched?: AddressPort | undefined
  /** What the relays that are asked for this link answer. */
  readonly trips: readonly RelayTrip[]
  /** The relays on port 443. Absent: none. */
  readonly webRelays?: readonly WebRelayView[]
  /** The most candidates. Absent: MAX_LINK_CANDIDATES. */
  readonly most?: number
  /**
   * Why probes through the NATs of both ends do not help a link that a relay carries: BothNatsVary, PunchUnanswered or
   * UdpUnanswered. Absent: it is not known, or no relay carries it.
   */
  readonly unpunched?: UnpunchedReason
}

export type UnpunchedReason = Extract<ReasonCode, 'BothNatsVary' | 'PunchUnanswered' | 'UdpUnanswered'>

/**
 * Room for places that the far end does not state, of which the first is the punched one, and for relays, of which a
 * link asks few at a time: the far end may state as many places as a connection has candidates.
 */
const ROOM = { others: 3, relays: 4 } as const

/** At most `most`: first the one in use, then places without a relay, best first, then relays. */
export function linkCandidates(init: LinkCandidatesInit): readonly LinkCandidate[] {
  const { most = MAX_LINK_CANDIDATES } = init
  const groups = [statedWays(init), otherWays(init), relayWays(init)] as const
  const names = new Set<string>()
  const used: LinkCandidate[] = []
  const [stated, others, relays] = groups.map((ways) =>
    ways.flatMap((way): LinkCandidate[] => {
      const name = nameOf(way)
      if (names.has(name)) return []
      names.add(name)
      const one = candidate(way, init)
      if (one.state !== 'in-use') return [one]
      used.push(one)
      return []
    }),
  ) as [LinkCandidate[], LinkCandidate[], LinkCandidate[]]
  const roomOfOthers = Math.min(others.length, ROOM.others, Math.floor(most / 4))
  const roomOfRelays = Math.min(relays.length, ROOM.relays, Math.floor(most / 4))
  const places = [...used, ...stated.slice(0, Math.max(0, most - used.length - roomOfOthers - roomOfRelays))]
  const direct = [...places, ...others.slice(0, Math.max(0, most - places.length - roomOfRelays))]
  return [...direct, ...relays].slice(0, most)
}

interface Way {
  readonly kind: LinkCandidate['kind']
  readonly place: AddressPort | undefined
  readonly relay?: string
  readonly trip?: RelayTrip
}

function nameOf({ kind, relay, place }: Way): string {
  return place === undefined ? `${kind} ${relay ?? ''}` : formatAddressPort(place)
}

function statedWays({ planned: { candidates, portMapped } }: LinkCandidatesInit): readonly Way[] {
  const led = portMapped === true ? candidates.findIndex(({ kind }) => kind === 'observed') : -1
  return candidates.map(({ kind, address, port }, i) => {
    return { kind: i === led ? 'mapped' : kind, place: { address: parseAddress(address), port } }
  })
}

/** Places that the far end does not state: from there it has called, or there probes were answered. */
function otherWays({ at, usingRelay, punched, places, unpunched }: LinkCandidatesInit): readonly Way[] {
  const used = at === undefined || usingRelay !== undefined || isWebPlace(at) ? [] : [at]
  const before = [...places.values()]
    .filter((one) => one.provenMs !== undefined && one.relay === undefined && !isRelayPlace(one.at))
    .map((one) => one.at)
  const nowhere: Way[] = unpunched === undefined || punched !== undefined ? [] : [{ kind: 'punched', place: undefined }]
  const known = [...(punched === undefined ? [] : [punched]), ...used, ...before]
  return [
    ...nowhere,
    ...known.map((place): Way => ({ kind: sameAddressPort(place, punched) ? 'punched' : 'called', place })),
  ]
}

function relayWays(init: LinkCandidatesInit): readonly Way[] {
  const { state, at, usingRelay, trips, places, webRelays = [] } = init
  const { relayPlaces = [], via } = init.planned
  const inUse = usingRelay === undefined || at === undefined ? [] : [{ cluster: usingRelay, at }]
  const bound = [...inUse, ...relayPlaces].map(({ cluster, at: place }): Way => {
    const trip = trips.find((one) => sameAddressPort(one.at, place))
    const kind = isWebPlace(place) ? 'tcp-443' : 'relay'
    return { kind, place, relay: cluster, ...(trip === undefined ? {} : { trip }) }
  })
  const others = trips
    .filter((trip) => !bound.some(({ place }) => sameAddressPort(place, trip.at)))
    .map((trip): Way => ({ kind: 'relay', place: trip.at, relay: trip.relay, trip }))
  // A link that has a direct way does not ask them.
  const isAsked = state !== 'up' || usingRelay !== undefined
  const web = (isAsked && via === undefined ? webRelays : []).filter(
    ({ name, sameAs }) => sameAs === undefined && !bound.some(({ relay }) => relay === name),
  )
  // A relay gives another port with each binding: of one that is bound now, earlier places say nothing.
  const isBound = (name: string): boolean =>
    bound.some(({ relay }) => relay === name) || trips.some((one) => one.relay === name && one.is === 'bound')
  const last = new Map(
    [...places.values()].flatMap(({ at: place, relay }): [string, AddressPort][] =>
      relay === undefined || isWebPlace(place) || isBound(relay) ? [] : [[relay, place]],
    ),
  )
  return [
    ...bound,
    ...[...last].map(([relay, place]): Way => ({ kind: 'relay', place, relay })),
    ...others,
    ...web.map(({ name }): Way => ({ kind: 'tcp-443', place: undefined, relay: name })),
  ]
}

function candidate({ kind, place, relay, trip }: Way, init: LinkCandidatesInit): LinkCandidate {
  const { at, state, figures } = init
  const record = place === undefined ? undefined : init.places.get(formatAddressPort(place))
  const web = kind === 'tcp-443' ? init.webRelays?.find(({ name }) => name === relay) : undefined
  const relayRttMs = (trip ?? web)?.rttMs
  const base = {
    kind,
    // Of a relay on port 443 it is a port of this process.
    ...(place === undefined || isWebPlace(place) ? {} : { at: formatAddressPort(place) }),
    ...(relay === undefined ? {} : { relay: fitText(printable(relay), 63) }),
    ...(relayRttMs === undefined ? {} : { relayRttMs: rounded(relayRttMs) }),
  }
  if (place !== undefined && sameAddressPort(place, at) && state === 'up')
    return { ...base, state: 'in-use', ...figuresOf(figures) }
  const measured = record?.measured
  const before = measured && { ...figuresOf(measured), measuredTime: timeText(measured.atMs) }
  if (record?.failed !== undefined) {
    const { sinceMs, reason } = record.failed
    return { ...base, state: 'failed', since: timeText(sinceMs), reason, ...before }
  }
  if (trip?.is === 'refuses') {
    return { ...base, state: 'failed', note: noteText(`the relay refuses: ${trip.why ?? ''}`) }
  }
  if (kind === 'punched' && place === undefined && init.unpunched !== undefined) {
    return { ...base, state: 'failed', reason: init.unpunched, note: UNPUNCHED[init.unpunched] }
  }
  if (place === undefined && web?.trouble !== undefined) {
    return { ...base, state: 'failed', reason: web.trouble.reason, note: noteText(web.trouble.why) }
  }
  if (record?.provenMs !== undefined) return { ...base, state: 'proven', since: timeText(record.provenMs), ...before }
  return { ...base, state: 'untried', note: noteText(whyUntried({ kind, place, trip, web }, init)), ...before }
}

/** For people. */
export const UNPUNCHED = {
  BothNatsVary: 'the NATs of both ends give each destination another port',
  PunchUnanswered: 'probes through the NATs of both ends get no answer',
  UdpUnanswered: 'probes by UDP between the two ends get no answer',
} as const satisfies Record<UnpunchedReason, string>

/** A relay without a connection knows of no far end. */
const WEB_STATES = {
  connected: 'not both ends are at this relay',
  connecting: 'the relay has not answered yet',
  waiting: 'the connection to the relay has ended; it is made again',
  idle: 'the relay is not called yet',
} as const satisfies Record<WebRelayView['is'], string>

function whyUntried(
  {
    kind,
    place,
    trip,
    web,
  }: Pick<Way, 'kind' | 'place'> & { readonly trip: RelayTrip | undefined; readonly web: WebRelayView | undefined },
  { at, state }: LinkCandidatesInit,
): string {
  if (place !== undefined && sameAddressPort(place, at)) return 'it is being called'
  if (trip?.is === 'asking') return 'the relay has not answered yet'
  if (trip !== undefined && !trip.hasFar) return 'the far end is not at this relay'
  if (web !== undefined && web.is !== 'connected') return WEB_STATES[web.is]
  if (place === undefined) return WEB_STATES.connected
  if (kind === 'punched') return 'probes pass there, and the link moves'
  return state === 'up' ? 'the link is up by another way' : 'its turn has not come'
}

function figuresOf({ rttMs, loss, mtu }: PlaceFigures): Pick<LinkCandidate, 'rttMs' | 'loss' | 'mtu'> {
  return {
    ...(rttMs === undefined ? {} : { rttMs: rounded(rttMs) }),
    ...(loss === undefined ? {} : { loss: Math.round(loss * 1000) / 1000 }),
    ...(mtu === undefined ? {} : { mtu }),
  }
}

function rounded(ms: number): number {
  return Math.round(ms * 100) / 100
}

function timeText(ms: number): string {
  return new Date(ms).toISOString()
}

function noteText(text: string): string {
  return fitText(printable(text), MAX_CANDIDATE_NOTE)
}
