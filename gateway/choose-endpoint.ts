/** Which underlay address a peer is called at, and why. Pure. */
import type { EndpointCandidate } from '../model/objects.ts'
import type { PeerState } from '../kernel/wireguard.ts'
import type { PeerHealthView } from './world.ts'

/**
 * keep: the device's own knowledge stays (it follows a peer that roams). try: the device is given this address.
 * wait: there is nothing to call; the peer calls us.
 */
export interface EndpointChoice {
  readonly how: 'keep' | 'try' | 'wait'
  /** address:port in use or to be tried, where known. */
  readonly address?: string
  /** In words, for logs and status. */
  readonly why: string
  /** When the next candidate is due, milliseconds since 1970. */
  readonly nextAtMs?: number
}

export interface EndpointChoiceInit {
  readonly nowMs: number
  /** How long one candidate is tried. */
  readonly rotateMs: number
  /** Best first. */
  readonly candidates: readonly EndpointCandidate[]
  /** The peer as the device has it; absent when it is new. */
  readonly peer: PeerState | undefined
  readonly health: PeerHealthView | undefined
}

/**
 * A peer that is up, or shook hands a moment ago, keeps its address. One that went down keeps it for one round,
 * since most breaks end where they began; then, and from the start for one that never answered, the candidates
 * take turns.
 */
export function chooseEndpoint(init: EndpointChoiceInit): EndpointChoice {
  const { candidates, peer, health, nowMs, rotateMs } = init
  const current = peer?.endpoint === undefined ? {} : { address: peer.endpoint }
  if (health?.state === 'up') return { how: 'keep', ...current, why: 'it answers' }
  if (candidates.length === 0) {
    if (peer?.endpoint !== undefined) return { how: 'keep', ...current, why: 'it called from there; it has no candidates' }
    return { how: 'wait', why: 'it has no candidates; it calls us' }
  }
  const round = health === undefined ? 0 : Math.max(0, Math.floor((nowMs - health.sinceMs) / rotateMs))
  const nextAtMs = (health?.sinceMs ?? nowMs) + (round + 1) * rotateMs
  const handshakeAgeMs = peer?.lastHandshakeMs === undefined ? Infinity : nowMs - peer.lastHandshakeMs
  if (peer?.endpoint !== undefined && health?.state === 'connecting' && handshakeAgeMs < rotateMs) {
    return { how: 'keep', ...current, why: 'it shook hands just now', nextAtMs }
  }
  const wasUp = health?.state === 'down'
  if (wasUp && round === 0 && peer?.endpoint !== undefined) {
    return { how: 'keep', ...current, why: 'it answered there until now', nextAtMs }
  }
  return tryCandidate(candidates, wasUp ? round - 1 : round, nextAtMs)
}

function tryCandidate(candidates: readonly EndpointCandidate[], turn: number, nextAtMs: number): EndpointChoice {
  const place = Math.max(0, turn) % candidates.length
  const candidate = candidates[place] as EndpointCandidate
  const why = `${candidate.kind} address, candidate ${place + 1} of ${candidates.length}`
  return { how: 'try', address: `${candidate.address}:${candidate.port}`, why, nextAtMs }
}
