/**
 * An address with a port as a value: the endpoint of a gateway, or the listen address of a server. It is text only at
 * the edges of the program.
 */
import { type Address, InvalidAddressError, compareAddresses, formatAddress, parseAddress } from '../values/values.ts'

export interface AddressPort {
  readonly address: Address
  readonly port: number
}

export interface AddressPortInit {
  /** The port of a text without one. If it is absent, the text must contain a port. */
  readonly defaultPort?: number
  /** Whether port 0 is valid; the kernel then chooses a port. */
  readonly allowZero?: boolean
}

const WITH_PORT = /^(\[[^\]]+\]|[^:[\]]+):(.*)$/
const BRACKETED = /^\[(.+)\]$/

/**
 * Parses `10.42.0.1:53` and `[fd00::1]:53`; with a default port also `10.42.0.1`, `fd00::1` and `[fd00::1]`. Throws
 * InvalidAddressError.
 */
export function parseAddressPort(text: string, field = 'address', init: AddressPortInit = {}): AddressPort {
  const { defaultPort, allowZero = false } = init
  const alone = defaultPort === undefined ? undefined : addressOf(text)
  if (alone !== undefined && defaultPort !== undefined) return { address: alone, port: defaultPort }
  const [, host = '', digits = ''] = WITH_PORT.exec(text) ?? []
  const address = addressOf(host)
  if (address === undefined || (address.family === 6 && !host.startsWith('['))) {
    const expected = defaultPort === undefined ? 'address:port' : 'an address or address:port'
    throw new InvalidAddressError(field, text, `${expected} such as 10.42.0.1:53 or [fd00::1]:53`)
  }
  const port = /^\d{1,5}$/.test(digits) ? Number(digits) : -1
  const lowest = allowZero ? 0 : 1
  if (port < lowest || port > 65_535) {
    throw new InvalidAddressError(field, text, `a port from ${lowest} to 65535`)
  }
  return { address, port }
}

/** Formats as `10.42.0.1:53` or `[fd00::1]:53`. */
export function formatAddressPort({ address, port }: AddressPort): string {
  const text = formatAddress(address)
  return `${address.family === 6 ? `[${text}]` : text}:${port}`
}

/** Undefined equals only undefined. */
export function sameAddressPort(a: AddressPort | undefined, b: AddressPort | undefined): boolean {
  if (a === undefined || b === undefined) return a === b
  return a.port === b.port && compareAddresses(a.address, b.address) === 0
}

/**
 * Whether two servers that listen at `a` and `b` take the same packets: they have the same port, and one address, or one
 * of them listens on all addresses of the family. Port 0 is a port of its own each time.
 */
export function sharesListenPort(a: AddressPort, b: AddressPort): boolean {
  if (a.port === 0 || a.port !== b.port || a.address.family !== b.address.family) return false
  return a.address.value === b.address.value || isUnspecified(a) || isUnspecified(b)
}

/**
 * Whether a server that listens at `own` gets what its machine sends to `other`. A server on the unspecified address
 * also answers on every address of its machine. Of these, only loopback is known from the address alone.
 */
export function isListenPlace(own: AddressPort, other: AddressPort): boolean {
  if (own.port !== other.port || own.address.family !== other.address.family) return false
  const isLoopback = other.address.family === 4 ? other.address.value >> 24n === 127n : other.address.value === 1n
  return own.address.value === other.address.value || (isUnspecified(own) && (isLoopback || isUnspecified(other)))
}

/** `0.0.0.0` or `::`, with any port: a server there listens on all addresses of the family. */
export function isUnspecified({ address }: AddressPort): boolean {
  return address.value === 0n
}

function addressOf(text: string): Address | undefined {
  try {
    return parseAddress(BRACKETED.exec(text)?.[1] ?? text)
  } catch (error) {
    if (error instanceof InvalidAddressError) return undefined
    throw error
  }
}

/**
 * A port of this cluster's nodes that pods of other clusters may connect to, as the operator writes it: `tcp/9100`.
 * Pure.
 */
export interface OpenPort {
  readonly protocol: 'tcp' | 'udp'
  readonly port: number
  /**
   * The node address, in canonical form. If it is absent, the port is open on every node address within the pod ranges.
   */
  readonly address?: string
}

/** Returns undefined if the text is not an open port. */
export function parseOpenPort(text: string): OpenPort | undefined {
  const [, protocol, number] = /^(tcp|udp)\/([1-9]\d{0,4})$/.exec(text) ?? []
  const port = Number(number)
  if (protocol === undefined || port > 0xffff) return undefined
  return { protocol: protocol as OpenPort['protocol'], port }
}
