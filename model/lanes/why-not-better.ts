/** Why a link does not use a better rung than its present one, by what its gateway reports. Pure. */
import {
  CONDITION_NAT_MAPPING,
  CONDITION_PORT_MAPPED,
  type Condition,
  type ConnectionStatus,
  type Endpoint,
  type LinkCandidate,
  findCondition,
} from '../model.ts'
import { LINK_RUNGS, type LinkRung, isHidden } from './link-rung.ts'
import { RUNG_TCP_443 } from './relay-address.ts'

export interface ReachOfLink {
  readonly connection: Pick<ConnectionStatus, 'candidates' | 'state'>
  /** Undefined while the link has none: then all rungs are better. */
  readonly rung: LinkRung | undefined
  readonly own: Endpoint | undefined
  readonly far: Endpoint | undefined
  /** Conditions of the Gateway. */
  readonly conditions: readonly Condition[] | undefined
  /** Members whose relays alone may carry the link, by the topology. Absent: it may have any way. */
  readonly via?: readonly string[] | undefined
}

export interface BetterRung {
  readonly rung: LinkRung
  /** A reason code (model/reasons). Absent: none fits. */
  readonly reason?: string
  /** One sentence for people, without its reason code. It may contain texts of other members. */
  readonly why: string
}

/** One for each better rung, the best first. Empty for a direct link. */
export function whyNotBetter(link: ReachOfLink): readonly BetterRung[] {
  const { rung, connection, via } = link
  const better = LINK_RUNGS.slice(0, rung === undefined ? LINK_RUNGS.length : LINK_RUNGS.indexOf(rung))
  if (via !== undefined) {
    const why = `the topology lets it use relays of ${via.join(', ')} alone`
    return better.flatMap((one): BetterRung[] => {
      if (one !== 'relayed') return [{ rung: one, reason: 'RelayedByTopology', why }]
      return [{ rung: one, ...ofRelays(connection.candidates, 'relay') }]
    })
  }
  return better.map((one) => ({ rung: one, ...WHYS[one](link) }))
}

type Why = Omit<BetterRung, 'rung'>

const WHYS: Readonly<Record<LinkRung, (link: ReachOfLink) => Why>> = {
  direct: whyNotDirect,
  'port-mapped': whyNotMapped,
  punched: whyNotPunched,
  relayed: ({ connection }) => ofRelays(connection.candidates, 'relay'),
  [RUNG_TCP_443]: ({ connection }) => ofRelays(connection.candidates, RUNG_TCP_443),
}

/** Kinds of addresses that a far end states. */
const STATED: ReadonlySet<LinkCandidate['kind']> = new Set(['public', 'private', 'observed', 'loadBalancer'] as const)

function whyNotDirect({ connection: { candidates }, own, far }: ReachOfLink): Why {
  const isOut = (end: Endpoint | undefined): boolean => end !== undefined && isHidden(end.spec.candidates)
  const places = candidates?.filter(({ kind }) => STATED.has(kind)) ?? []
  const failed = places.find(({ state }) => state === 'failed')
  const hidden = isOut(own) && isOut(far)
  const neither = hidden ? 'neither gateway can be called from outside, as far as is known' : undefined
  if (failed !== undefined) return { ...failureOf(failed), why: joined(neither, failureText(failed)) }
  if (neither !== undefined) return { why: neither }
  if (candidates === undefined) return { why: UNKNOWN }
  if (places.length === 0) return { why: 'the far gateway states no address that can be called from here' }
  return { why: `${placeText(places[0])} was not called: ${places[0]?.note ?? 'its turn has not come'}` }
}

function whyNotMapped({ conditions, connection: { candidates } }: ReachOfLink): Why {
  const mapped = candidates?.find(({ kind }) => kind === 'mapped')
  if (mapped?.state === 'failed') return { ...failureOf(mapped), why: `at the far end, ${failureText(mapped)}` }
  const condition = findCondition(conditions, CONDITION_PORT_MAPPED)
  if (condition === undefined) return { why: 'no router in front of this gateway is asked to map ports' }
  if (condition.status === 'False') return { reason: condition.reason, why: condition.message }
  return { why: 'a router leads calls to this gateway, and none of the far gateway has come that way' }
}

function whyNotPunched({ conditions, connection: { candidates } }: ReachOfLink): Why {
  const nat = findCondition(conditions, CONDITION_NAT_MAPPING)
  const place = candidates?.find(({ kind }) => kind === 'punched')
  if (place?.state === 'failed') return { ...failureOf(place), why: failureText(place) }
  if (nat?.status === 'False') return { reason: nat.reason, why: nat.message }
  if (nat === undefined) return { why: 'no two relays see this gateway, so its NAT is not known' }
  return { why: 'it is being looked for' }
}

function ofRelays(candidates: readonly LinkCandidate[] | undefined, kind: 'relay' | typeof RUNG_TCP_443): Why {
  if (candidates === undefined) return { why: UNKNOWN }
  const relays = candidates.filter((one) => one.kind === kind)
  const failed = relays.find(({ state }) => state === 'failed')
  if (failed !== undefined) return { ...failureOf(failed), why: `${failed.relay ?? ''}: ${failureText(failed)}` }
  const [first] = relays
  if (first !== undefined) return { why: `${first.relay ?? ''}: ${first.note ?? 'its turn has not come'}` }
  return {
    why: kind === 'relay' ? 'no member offers a relay that both ends reach' : 'no relay on port 443 has both ends',
  }
}

const UNKNOWN = 'not known: the gateway is of an earlier release, or has too many links'

function failureOf({ reason }: LinkCandidate): Pick<Why, 'reason'> {
  return reason === undefined ? {} : { reason }
}

function failureText({ at, since, note }: LinkCandidate): string {
  const when = since === undefined ? '' : ` since ${since}`
  return note ?? `nothing has answered at ${at ?? 'its place'}${when}`
}

function placeText(one: LinkCandidate | undefined): string {
  return one?.at ?? 'its address'
}

function joined(...parts: readonly (string | undefined)[]): string {
  return parts.filter((part) => part !== undefined).join('; ')
}
