/** `address:port` where a name will not do: places to listen, servers to ask. */
import { type Address, InvalidAddressError, parseAddress } from '../model/addresses/ip.ts'
import { InvalidValueError, parsePort } from './host-port.ts'

export interface AddressPort {
  readonly address: Address
  readonly port: number
}

export interface AddressPortInit {
  /** Taken where the text names no port; without it, a port must be there. */
  readonly defaultPort?: number
  /** Port 0: the system picks. */
  readonly allowZero?: boolean
}

const WITH_PORT = /^(\[[^\]]+\]|[^:[\]]+):(.*)$/
const BRACKETED = /^\[(.+)\]$/

/**
 * `10.42.0.1:53`, `[fd00::1]:53`; with a default port also `10.42.0.1`, `fd00::1` and `[fd00::1]`.
 * Throws InvalidValueError.
 */
export function parseAddressPort(text: string, field: string, init: AddressPortInit = {}): AddressPort {
  const { defaultPort, allowZero = false } = init
  const alone = defaultPort === undefined ? undefined : addressOf(text)
  if (alone !== undefined && defaultPort !== undefined) return { address: alone, port: defaultPort }
  const [, host = '', digits = ''] = WITH_PORT.exec(text) ?? []
  const address = addressOf(host)
  if (address === undefined || (address.family === 6 && !host.startsWith('['))) {
    const expected = defaultPort === undefined ? 'address:port' : 'an address or address:port'
    throw new InvalidValueError(field, text, `${expected} such as 10.42.0.1:53 or [fd00::1]:53`)
  }
  return { address, port: parsePort(digits, field, { shown: text, allowZero }) }
}

function addressOf(text: string): Address | undefined {
  try {
    return parseAddress(BRACKETED.exec(text)?.[1] ?? text)
  } catch (error) {
    if (error instanceof InvalidAddressError) return undefined
    throw error
  }
}
