/** How often an end of a link sends a keepalive. Pure. */

/** Keeps the state of stateful firewalls, and lets an idle device complete a handshake again. */
const KEEPALIVE_SECONDS = 25
/** NAT entries for UDP live 30 s or more (RFC 4787 REQ-5 requires 120), but some NATs keep them for only 20 s. */
const BEHIND_NAT_SECONDS = 10
/**
 * Behind a NAT that has shown to keep entries: less than KEEPALIVE_SECONDS. An end puts off its own keepalive by each of
 * the far end's, and not every NAT keeps an entry because of packets from outside, so the end behind NAT comes first.
 */
const BEHIND_PATIENT_NAT_SECONDS = 20
/** The shortest life of an entry after which that is safe. */
const PATIENT_SECONDS = 30
/** For a NAT that forgets an entry within BEHIND_NAT_SECONDS. */
const BEHIND_HASTY_NAT_SECONDS = 5

export interface KeepaliveInit {
  /** This end is behind NAT. */
  readonly behindNat: boolean
  /** For how long that NAT keeps an entry, at least: GatewayWorld.natLifeSeconds. Absent: it is not known. */
  readonly natLifeSeconds?: number
  /** The far end is surely not behind NAT: CableLink.isPublic. Absent: it may be, and send as often as this end. */
  readonly farIsPublic?: boolean
}

/** In seconds, 5 to 25: far ends expect one in 25 s, and miss three before they ask (SILENCE_MS). */
export function keepaliveSeconds({ behindNat, natLifeSeconds, farIsPublic = false }: KeepaliveInit): number {
  if (!behindNat) return KEEPALIVE_SECONDS
  if (natLifeSeconds === undefined) return BEHIND_NAT_SECONDS
  if (natLifeSeconds < BEHIND_NAT_SECONDS) return BEHIND_HASTY_NAT_SECONDS
  return natLifeSeconds >= PATIENT_SECONDS && farIsPublic ? BEHIND_PATIENT_NAT_SECONDS : BEHIND_NAT_SECONDS
}
