/** `host:port` as people write it in flags and files. */

export interface HostPort {
  /** Address or host name; IPv6 without its brackets. */
  readonly host: string
  readonly port: number
}

/** What a parser of user input throws; the message is complete and ends up on the terminal. */
export class InvalidValueError extends Error {
  constructor(field: string, value: string, expected: string) {
    super(`${field} ${JSON.stringify(value.slice(0, 100))}: expected ${expected}`)
    this.name = 'InvalidValueError'
  }
}

const HOST = /^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$/
const BRACKETED = /^\[([0-9a-fA-F:.]+)\]$/

/**
 * `10.0.0.1:53`, `broker.example.org:7443`, `[2001:db8::1]:53`. Port 0 only where `allowZero`: the system picks.
 * Throws InvalidValueError.
 */
export function parseHostPort(text: string, field = 'address', allowZero = false): HostPort {
  const colon = text.lastIndexOf(':')
  const host = text.slice(0, Math.max(colon, 0))
  const bare = BRACKETED.exec(host)?.[1] ?? (HOST.test(host) ? host : undefined)
  if (bare === undefined) throw new InvalidValueError(field, text, 'host:port such as 10.0.0.1:53 or [2001:db8::1]:53')
  return { host: bare, port: parsePort(text.slice(colon + 1), field, { shown: text, allowZero }) }
}

/** Decimal port number; `shown` is all that the user wrote. Throws InvalidValueError. */
export function parsePort(
  digits: string,
  field = 'port',
  { shown = digits, allowZero = false }: { readonly shown?: string; readonly allowZero?: boolean } = {},
): number {
  const port = /^\d{1,5}$/.test(digits) ? Number(digits) : -1
  const lowest = allowZero ? 0 : 1
  if (port < lowest || port > 65_535) throw new InvalidValueError(field, shown, `a port from ${lowest} to 65535`)
  return port
}

export function formatHostPort({ host, port }: HostPort): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}
