/** By which rung of reach the packets of a link travel. Pure. */
import type { ConnectionStatus, Endpoint, EndpointCandidate } from '../model.ts'
import { CAPABILITY_PORT_MAPPED } from './lane-number.ts'
import { linkPort } from './link-port.ts'
import { RUNG_TCP_443, isWebRelayName } from './relay-address.ts'

/**
 * Direct: at least one end can be called, by whatever NAT. Port-mapped: neither can, but a router leads calls to one of
 * the two. Punched: neither can, but each sends to the place that the NAT in front of the other one has given it.
 * Relayed: the gateway of a third member forwards the packets. By TCP 443: a relay on that port forwards them.
 */
export const LINK_RUNGS = ['direct', 'port-mapped', 'punched', 'relayed', RUNG_TCP_443] as const
export type LinkRung = (typeof LINK_RUNGS)[number]

/** True for a gateway behind NAT that no outside gateway can call, as far as its candidates show. */
export function isHidden(candidates: readonly EndpointCandidate[]): boolean {
  const has = (kind: EndpointCandidate['kind']): boolean => candidates.some((one) => one.kind === kind)
  return candidates.length === 0 || (has('observed') && !has('public'))
}

/**
 * The rung of a link, by what the Gateway of one end reports and the Endpoints of both ends. Undefined while it has no
 * address. Without an Endpoint, as after its end has left, the end counts as one that can be called. An end cannot see at
 * which of its own places it is called: if only its own router maps ports, what the far end reports is the exact one.
 */
export function linkRung(
  { usingAddress, usingNat, usingRelay }: Pick<ConnectionStatus, 'usingAddress' | 'usingNat' | 'usingRelay'>,
  own: Endpoint | undefined,
  far: Endpoint | undefined,
): LinkRung | undefined {
  if (usingAddress === undefined) return undefined
  if (usingRelay !== undefined) return isWebRelayName(usingRelay) ? RUNG_TCP_443 : 'relayed'
  const isHiddenEnd = (end: Endpoint | undefined): boolean => end !== undefined && isHidden(end.spec.candidates)
  if (!usingNat || !isHiddenEnd(own) || !isHiddenEnd(far)) return 'direct'
  if (far !== undefined && isMapped(far)) return usingAddress === ledPlace(far, own) ? 'port-mapped' : 'punched'
  return own !== undefined && isMapped(own) ? 'port-mapped' : 'punched'
}

function isMapped({ spec }: Endpoint): boolean {
  return spec.capabilities.includes(CAPABILITY_PORT_MAPPED)
}

/** Where the router of the far end leads calls of this end: its first observed candidate. */
function ledPlace({ spec: { candidates, lane } }: Endpoint, own: Endpoint | undefined): string | undefined {
  const led = candidates.find(({ kind }) => kind === 'observed')
  if (led === undefined) return undefined
  return `${led.address}:${linkPort({ stated: led.port, of: lane, from: own?.spec.lane ?? lane })}`
}
