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
  /** Of the two ends, this one calls at once; the other gives it a moment. See CALL_FIRST_MS. */
  readonly callsFirst: boolean
  /** Best first. */
  readonly candidates: readonly EndpointCandidate[]
  /** The peer as the device has it; absent when it is new. */
  readonly peer: PeerState | undefined
  readonly health: PeerHealthView | undefined
}

/**
 * When both ends send a handshake initiation before they got the other's, WireGuard answers both and completes
 * neither, and both wait 5 s (REKEY_TIMEOUT) before they try again. Endpoints reach both ends at about the same
 * time, so this would be the rule, not the exception. Longer than most one-way delays, shorter than a person notices.
 */
const CALL_FIRST_MS = 300

/**
 * A peer that is up, or shook hands a moment ago, keeps its address. One that went down keeps it for one round,
 * since most breaks end where they began; then, and from the start for one that never answered, the candidates
 * take turns.
 */
export function chooseEndpoint(init: EndpointChoiceInit): EndpointChoice {
  const { candidates, peer, health, nowMs, rotateMs } = init
  const current = peer?.endpoint === undefined ? {} : { address: peer.endpoint }
  // A device that was made anew has forgotten where its peers are, whatever the probes said a moment ago.
  if (health?.state === 'up' && peer?.endpoint !== undefined) return { how: 'keep', ...current, why: 'it answers' }
  if (candidates.length === 0) {
    if (peer?.endpoint !== undefined)
      return { how: 'keep', ...current, why: 'it called from there; it has no candidates' }
    return { how: 'wait', why: 'it has no candidates; it calls us' }
  }
  const knownForMs = health === undefined ? 0 : nowMs - health.sinceMs
  const unheard = peer?.lastHandshakeMs === undefined && (health === undefined || health.state === 'connecting')
  if (!init.callsFirst && unheard && knownForMs >= 0 && knownForMs < CALL_FIRST_MS) {
    return { how: 'wait', why: 'it calls first', nextAtMs: nowMs - knownForMs + CALL_FIRST_MS }
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
