/**
 * Far ends that are about to have another identity, or just took one: as which one a link leads to them. What the device
 * has counts, whatever a process remembers: a restart changes nothing. Pure.
 */
import type { Endpoint } from '../../model/objects.ts'
import { type CableRules, type FarEnd, type LaneState, type LinkState, linkKey } from '../cable/cable.ts'
import { type GatewayWorld, healthKey } from '../world.ts'
import type { Refusal } from './check-remotes.ts'

/** Of this node: what its devices have, and what it has announced. */
export function ownIdentities({ laneStates, nextIdentity }: GatewayWorld): readonly string[] {
  const present = [...laneStates.values()].map(({ identity }) => identity)
  return [...new Set([...present, ...(nextIdentity === undefined ? [] : [nextIdentity])])]
}

export interface AnnouncedIdentities {
  /** By the names of the Endpoints. */
  readonly identities: ReadonlyMap<string, string>
  readonly refusals: readonly Refusal[]
}

/**
 * What Endpoints announce, but what anybody has already, or has announced with a name that comes first. What is refused
 * here costs its owner nothing but the announcement.
 */
export function announcedIdentities(
  endpoints: readonly Endpoint[],
  { rules, own }: { readonly rules: CableRules; readonly own: readonly string[] },
): AnnouncedIdentities {
  const sorted = [...endpoints].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
  const owners = new Map(sorted.map((one) => [rules.identityOf(one), `Endpoint ${one.metadata.name}`]))
  for (const identity of own) owners.set(identity, 'this node')
  const identities = new Map<string, string>()
  const refusals: Refusal[] = []
  for (const endpoint of sorted) {
    const next = rules.nextIdentityOf(endpoint)
    if (next === undefined) continue
    const { name } = endpoint.metadata
    const owner = owners.get(next)
    if (owner === undefined) identities.set(name, next)
    else refusals.push({ subject: `Endpoint ${name}`, ...rules.identityTaken(owner, 'next') })
    owners.set(next, owner ?? `Endpoint ${name}`)
  }
  return { identities, refusals }
}

/** The state of a link, under whichever identity it carries, else under the first that is known. */
export function linkAsAny(lane: LaneState | undefined, ends: readonly FarEnd[]): LinkState | undefined {
  const states = ends.flatMap((end) => lane?.links.get(linkKey(end)) ?? [])
  return states.find(({ carries }) => carries) ?? states[0]
}

export interface ChosenIdentity<L> {
  readonly serving: L
  /** The same far end under its other identity, called beside it. */
  readonly called?: L
}

/**
 * A far end is known by its present identity until this node has followed it. A link that does not answer may be one
 * whose far end has changed unheard: then the other identity is called beside it, and takes over once it has shaken
 * hands.
 */
export function chooseIdentity<L extends FarEnd & { readonly cluster: string; readonly announced?: string }>(
  { laneStates, health }: Pick<GatewayWorld, 'laneStates' | 'health'>,
  link: L,
  announced: string | undefined,
): ChosenIdentity<L> {
  if (announced === undefined) return { serving: link }
  const present = { ...link, announced }
  const next = { ...present, identity: announced }
  const stateOf = (end: FarEnd): LinkState | undefined => laneStates.get(link.remoteLane)?.links.get(linkKey(end))
  const [serving, other] = stateOf(next)?.carries === true ? [next, present] : [present, next]
  const view = health.get(healthKey(link.remoteLane, link.cluster))
  if (view?.state === 'up' && view.doubted !== true) return { serving }
  return stateOf(other)?.handshakeMs === undefined ? { serving, called: other } : { serving: other }
}
