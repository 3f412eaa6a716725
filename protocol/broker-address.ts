/** Where a broker listens: `host:port`, `192.0.2.1:7443` or `[2001:db8::1]:7443`. */
import { isIPv6 } from 'node:net'
import { isDnsSubdomain } from '../model/ids.ts'

export const DEFAULT_BROKER_PORT = 7443

export interface BrokerAddress {
  readonly host: string
  readonly port: number
}

export class BrokerAddressError extends Error {
  constructor(field: string, value: string) {
    super(
      `${field} ${JSON.stringify(value.slice(0, 300))}: expected host:port, such as 192.0.2.1:7443 or [2001:db8::1]:7443`,
    )
    this.name = 'BrokerAddressError'
  }
}

/** Throws BrokerAddressError. Without a port, DEFAULT_BROKER_PORT. */
export function parseBrokerAddress(text: string, field = 'broker address'): BrokerAddress {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text)
  const [, bracketed, plain, portText] = match ?? []
  const port = portText === undefined ? DEFAULT_BROKER_PORT : Number(portText)
  const hostFits = bracketed !== undefined ? isIPv6(bracketed) : isDnsSubdomain((plain ?? '').toLowerCase())
  if (match === null || !hostFits || port < 1 || port > 65_535) throw new BrokerAddressError(field, text)
  return { host: bracketed ?? plain ?? '', port }
}

export function formatBrokerAddress({ host, port }: BrokerAddress): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}
