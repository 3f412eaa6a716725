/** `host:port` as users write it in flags and files. */

export interface HostPort {
  /** Address or host name; IPv6 without its brackets. */
  readonly host: string
  readonly port: number
}

/** Thrown by parsers of user input; the message is complete and is shown on the terminal. */
export class InvalidValueError extends Error {
  constructor(field: string, value: string, expected: string) {
    super(`${field} ${JSON.stringify(value.slice(0, 100))}: expected ${expected}`)
    this.name = 'InvalidValueError'
  }
}

const HOST = /^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$/
const BRACKETED = /^\[([0-9a-fA-F:.]+)\]$/

/**
 * Parses `10.0.0.1:53`, `broker.example.org:7443` and `[2001:db8::1]:53`. Port 0, with which the kernel chooses a port,
 * is valid only with `allowZero`. Throws InvalidValueError.
 */
export function parseHostPort(text: string, field = 'address', allowZero = false): HostPort {
  const colon = text.lastIndexOf(':')
  const host = text.slice(0, Math.max(colon, 0))
  const bare = BRACKETED.exec(host)?.[1] ?? (HOST.test(host) ? host : undefined)
  if (bare === undefined) throw new InvalidValueError(field, text, 'host:port such as 10.0.0.1:53 or [2001:db8::1]:53')
  return { host: bare, port: parsePort(text.slice(colon + 1), field, { shown: text, allowZero }) }
}

/** Parses a decimal port number; `shown` is the user's whole text, for messages. Throws InvalidValueError. */
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

// Durations as users write them: `500ms`, `10s`, `5m`, `24h`.

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }
const DURATION = /^(\d{1,15}(?:\.\d{1,3})?)(ms|s|m|h)$/
const MAX_MS = 366 * 24 * 3_600_000

export interface DurationRange {
  readonly minMs?: number
  readonly maxMs?: number
}

/**
 * Returns milliseconds. Throws InvalidValueError for other forms and for values outside the range (default 0 to 366
 * days).
 */
export function parseDuration(text: string, field = 'duration', range: DurationRange = {}): number {
  const match = DURATION.exec(text)
  if (match === null) throw new InvalidValueError(field, text, 'a duration such as 500ms, 10s, 5m or 24h')
  const ms = Math.round(Number(match[1]) * (UNIT_MS[match[2] ?? ''] ?? 0))
  const { minMs = 0, maxMs = MAX_MS } = range
  if (ms < minMs || ms > maxMs) {
    throw new InvalidValueError(field, text, `${formatDuration(minMs)} to ${formatDuration(maxMs)}`)
  }
  return ms
}

/** Returns the shortest exact form: 90000 is `90s`, 60000 is `1m`, 0 is `0s`. */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s'
  for (const unit of ['h', 'm', 's'] as const) {
    const size = UNIT_MS[unit] ?? 1
    if (ms >= size && ms % size === 0) return `${ms / size}${unit}`
  }
  return `${ms}ms`
}
