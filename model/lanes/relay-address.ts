/** Relays on port 443: their addresses, and how gateways learn of them from the agent. */
import { createHash } from 'node:crypto'

/** An annotation of the Membership, which the agent writes and gateways read: encodeRelayNotice(). */
export const RELAYS_ANNOTATION = 'sealane.io/relays'
/** Most relays of a clusterset. */
export const MAX_RELAYS = 4
const MAX_ADDRESS_LENGTH = 512
const MAX_TICKET_LENGTH = 11_000
/** What status calls a link that such a relay carries: this and the relay's host. No cluster id has a space. */
export const RUNG_TCP_443 = 'tcp-443'
const MAX_RELAY_NAME = 63
/** So many digits tell apart long hosts that begin alike. */
const LONG_NAME_HASH = 12

export interface RelayAddress {
  /** `wss://host[:port]/[path]`. */
  readonly url: string
  /** host[:port]. */
  readonly host: string
  /** SHA-256 of the relay's public key, in hexadecimal: after `#`. Absent: the authorities of the system count. */
  readonly pin?: string
}

/** Undefined if the text is no address of a relay: `wss://host[:port]/[path][#pin]`. Never throws. */
export function readRelayAddress(text: string): RelayAddress | undefined {
  if (text.length > MAX_ADDRESS_LENGTH || !/^wss:\/\/[\x21-\x7e]+$/.test(text) || !URL.canParse(text)) return undefined
  const url = new URL(text)
  const pin = url.hash.slice(1).toLowerCase()
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hostname === '' || url.port === '0')
    return undefined
  if (url.hash !== '' && !/^[0-9a-f]{64}$/.test(pin)) return undefined
  url.hash = ''
  return { url: url.href, host: url.host, ...(pin === '' ? {} : { pin }) }
}

/**
 * The relays of a clusterset: those of the broker's flags, and then those that operators have added. Of several with
 * one host and port, the first alone counts, because a link is named by its relay (relayName()). No more than MAX_RELAYS. Pure.
 */
export function mergedRelays(flagged: readonly string[], added: readonly string[]): readonly string[] {
  const hosts = new Set(flagged.map(hostOf))
  const more = added.filter((text) => {
    const host = hostOf(text)
    if (host === undefined || hosts.has(host)) return false
    hosts.add(host)
    return true
  })
  return [...flagged, ...more].slice(0, MAX_RELAYS)
}

/** Two different addresses with one host and port, one of `flagged` and one of `added`. Undefined if there are none. */
export function relayConflict(
  flagged: readonly string[],
  added: readonly string[],
): { readonly flagged: string; readonly added: string } | undefined {
  for (const one of flagged) {
    const other = added.find((text) => text !== one && hostOf(text) !== undefined && hostOf(text) === hostOf(one))
    if (other !== undefined) return { flagged: one, added: other }
  }
  return undefined
}

function hostOf(text: string): string | undefined {
  return readRelayAddress(text)?.host
}

/** For messages. */
export const RELAY_ADDRESS_FORM = 'wss://host[:port]/[path], with #pin for a relay that made its certificate itself'

/** How status names the relay of a link. Different hosts have different names. */
export function relayName({ host }: Pick<RelayAddress, 'host'>): string {
  const name = `${RUNG_TCP_443} ${host}`
  if (name.length <= MAX_RELAY_NAME) return name
  const hash = createHash('sha256').update(host).digest('hex').slice(0, LONG_NAME_HASH)
  return `${name.slice(0, MAX_RELAY_NAME - LONG_NAME_HASH - 1)}~${hash}`
}

/** Whether ConnectionStatus.usingRelay, or KnownRelay.name, names a relay on port 443. The id of a member has no space. */
export function isWebRelayName(name: string): boolean {
  return name === RUNG_TCP_443 || name.startsWith(`${RUNG_TCP_443} `)
}

/** What the agent tells the gateways of its cluster. */
export interface RelayNotice {
  /** As the broker states them; each is read by readRelayAddress(). */
  readonly addresses: readonly string[]
  /** The cluster's ticket (protocol/tickets/), in base64. Absent: there is none yet. */
  readonly ticket?: string
}

export function encodeRelayNotice({ addresses, ticket }: RelayNotice): string {
  return JSON.stringify({ addresses, ...(ticket === undefined ? {} : { ticket }) })
}

/** Gives no addresses for a text that is no notice. Never throws. */
export function decodeRelayNotice(text: string | undefined): RelayNotice {
  if (text === undefined || text.length > MAX_TICKET_LENGTH + MAX_RELAYS * MAX_ADDRESS_LENGTH) return { addresses: [] }
  try {
    const { addresses, ticket } = JSON.parse(text) as Readonly<Record<string, unknown>>
    const hasTicket = typeof ticket === 'string' && /^[A-Za-z0-9+/]+={0,2}$/.test(ticket)
    return { addresses: usableRelays(addresses), ...(hasTicket ? { ticket } : {}) }
  } catch {
    return { addresses: [] }
  }
}

/** The valid addresses of a list that somebody else stated, each once, and no more than MAX_RELAYS. Never throws. */
export function usableRelays(stated: unknown): readonly string[] {
  if (!Array.isArray(stated)) return []
  const valid = stated.slice(0, 64).filter((one): one is string => {
    return typeof one === 'string' && readRelayAddress(one) !== undefined
  })
  return [...new Set(valid)].slice(0, MAX_RELAYS)
}
