/**
 * Checks of the backends of a site's own services: the text of a check, and the effect of its results. Pure.
 *
 * A check is an annotation of an EndpointSlice: `tcp`, `tcp:9000`, `http:/healthz`, `https:9443/healthz`, each with any of
 * ` interval=2s timeout=1s fall=2 rise=1`. The agent of the site runs it and writes the results into the status.
 */
import { type BackendHealth, type EndpointSlice, InvalidNameError, LABEL_SOURCE_CLUSTER } from '../model.ts'
import { MAX_PORT } from '../values/values.ts'

export const ANNOTATION_CHECK = 'sealane.io/check'

/** How often a check runs, and how many results in a row change the state of a backend. */
export interface CheckTiming {
  readonly intervalMs: number
  /** At most intervalMs, so that a backend has one check at a time. */
  readonly timeoutMs: number
  /** Failures in a row after which a backend is down. */
  readonly fall: number
  /** Successes in a row after which it is up again. */
  readonly rise: number
}

/** What a check does. Without a port, it uses the first TCP port of the slice. */
export type CheckMethod =
  | { readonly type: 'tcp'; readonly port?: number }
  /** A GET request that succeeds with a status from 200 to 399. */
  | { readonly type: 'http' | 'https'; readonly port?: number; readonly path: string }

export type BackendCheck = CheckMethod & CheckTiming

export const DEFAULT_CHECK_TIMING: CheckTiming = { intervalMs: 2000, timeoutMs: 1000, fall: 2, rise: 1 }
export const CHECK_INTERVAL_RANGE = { minMs: 100, maxMs: 600_000 } as const
export const CHECK_TIMEOUT_RANGE = { minMs: 50, maxMs: 60_000 } as const
export const MAX_CHECK_COUNT = 20

const METHODS = 'tcp, tcp:9000, http:/path, https:/path or http:9000/path'
const SETTINGS = `${METHODS}, then any of interval=2s, timeout=1s, fall=2, rise=1, with a space before each`
const METHOD = /^(?:(tcp)(?::(\d{1,5}))?|(https?):(\d{1,5})?(\/[!-"$-~]{0,255}))$/
const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000 }

/** Parses `http:/healthz` and the like. Throws InvalidNameError with the field, the value and what was expected. */
export function parseCheckMethod(text: string, field: string = ANNOTATION_CHECK): CheckMethod {
  return orInvalid(readMethod(text), text, field)
}

/** Parses the value of the annotation. Throws InvalidNameError like parseCheckMethod(). */
export function parseBackendCheck(text: string, field: string = ANNOTATION_CHECK): BackendCheck {
  return orInvalid(readCheck(text), text, field)
}

function orInvalid<T extends object>(read: T | string, text: string, field: string): T {
  if (typeof read === 'string') throw new InvalidNameError(field, text, read)
  return read
}

/** Gives the method, or what was expected. */
function readMethod(text: string): CheckMethod | string {
  const [, tcp, tcpPort, http, httpPort, path = ''] = METHOD.exec(text) ?? []
  const digits = tcpPort ?? httpPort
  const port = digits === undefined ? undefined : Number(digits)
  if (port !== undefined && (port < 1 || port > MAX_PORT)) return `a port from 1 to ${MAX_PORT}`
  const at = port === undefined ? {} : { port }
  if (tcp !== undefined) return { type: 'tcp', ...at }
  return http === 'http' || http === 'https' ? { type: http, ...at, path } : METHODS
}

/** Gives the check, or what was expected. */
function readCheck(text: string): BackendCheck | string {
  const [first = '', ...settings] = text.split(' ')
  const method = readMethod(first)
  if (typeof method === 'string') return method
  const found = new Map<string, number>()
  for (const setting of settings) {
    const [, name = '', digits = '', unit] = /^(interval|timeout|fall|rise)=(\d{1,6})(ms|s|m)?$/.exec(setting) ?? []
    const isTime = name === 'interval' || name === 'timeout'
    if (name === '' || isTime !== (unit !== undefined) || found.has(name)) return SETTINGS
    found.set(name, Number(digits) * (unit === undefined ? 1 : (UNIT_MS[unit] ?? 1)))
  }
  const standard = DEFAULT_CHECK_TIMING
  const intervalMs = found.get('interval') ?? standard.intervalMs
  const timing = {
    intervalMs,
    timeoutMs: found.get('timeout') ?? Math.min(standard.timeoutMs, intervalMs),
    fall: found.get('fall') ?? standard.fall,
    rise: found.get('rise') ?? standard.rise,
  }
  return timingProblem(timing) ?? { ...method, ...timing }
}

/** What is expected of a timing; undefined if nothing is wrong with it. */
export function timingProblem({ intervalMs, timeoutMs, fall, rise }: CheckTiming): string | undefined {
  const isIn = (ms: number, { minMs, maxMs }: { readonly minMs: number; readonly maxMs: number }): boolean =>
    Number.isInteger(ms) && ms >= minMs && ms <= maxMs
  if (!isIn(intervalMs, CHECK_INTERVAL_RANGE)) return 'an interval from 100ms to 10m'
  if (!isIn(timeoutMs, CHECK_TIMEOUT_RANGE)) return 'a timeout from 50ms to 1m'
  if (timeoutMs > intervalMs) return 'a timeout that is not longer than the interval'
  const isCount = (count: number): boolean => Number.isInteger(count) && count >= 1 && count <= MAX_CHECK_COUNT
  return isCount(fall) && isCount(rise) ? undefined : `fall and rise from 1 to ${MAX_CHECK_COUNT}`
}

/** Returns `tcp:9000` or `http:/healthz`: what parseCheckMethod() reads. */
export function formatCheckMethod(check: CheckMethod): string {
  const port = check.port === undefined ? '' : String(check.port)
  if (check.type === 'tcp') return port === '' ? 'tcp' : `tcp:${port}`
  return `${check.type}:${port}${check.path}`
}

/** Returns the value of the annotation, with every setting. parseBackendCheck() reads the same check from it. */
export function formatBackendCheck(check: BackendCheck): string {
  const { intervalMs, timeoutMs, fall, rise } = check
  const settings = [
    `interval=${timeText(intervalMs)}`,
    `timeout=${timeText(timeoutMs)}`,
    `fall=${fall}`,
    `rise=${rise}`,
  ]
  return [formatCheckMethod(check), ...settings].join(' ')
}

function timeText(ms: number): string {
  return ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`
}

/**
 * What was expected of the annotation of a slice, for `<field>: expected …`. Undefined if its backends can be checked, or
 * if it has no check.
 */
export function checkProblem(slice: Pick<EndpointSlice, 'metadata' | 'addressType' | 'ports'>): string | undefined {
  const text = slice.metadata.annotations?.[ANNOTATION_CHECK]
  if (text === undefined) return undefined
  const check = readCheck(text)
  if (typeof check === 'string') return check
  if (slice.addressType === 'FQDN') return 'no check, as its endpoints are names'
  return checkPort(check, slice) === undefined ? 'a port, as in tcp:9000, as the slice has no TCP port' : undefined
}

/** The port that a check connects to. Undefined if neither the check nor the slice names one. */
export function checkPort(check: CheckMethod, { ports = [] }: Pick<EndpointSlice, 'ports'>): number | undefined {
  return check.port ?? ports.find(({ protocol = 'TCP', port }) => protocol === 'TCP' && port !== undefined)?.port
}

/** The check of a slice of this site's own. Undefined for imported slices, and where there is none or an invalid one. */
export function checkOf(slice: EndpointSlice): BackendCheck | undefined {
  const { annotations, labels } = slice.metadata
  const text = annotations?.[ANNOTATION_CHECK]
  if (text === undefined || labels?.[LABEL_SOURCE_CLUSTER] !== undefined || checkProblem(slice) !== undefined)
    return undefined
  return parseBackendCheck(text)
}

/**
 * The slice as everything at the site sees it: a backend that its check has found down is not ready. A backend that the
 * user's slice calls not ready stays so. Results of another check are dropped.
 */
export function withBackendHealth(slice: EndpointSlice): EndpointSlice {
  const { status, ...stated } = slice
  if (status === undefined) return slice
  if (status.check !== slice.metadata.annotations?.[ANNOTATION_CHECK] || checkOf(slice) === undefined) return stated
  const down = downBackends(status)
  if (down.size === 0 || slice.endpoints === undefined) return slice
  const endpoints = slice.endpoints.map((endpoint) => {
    if (!down.has(endpoint.addresses[0] ?? '')) return endpoint
    return { ...endpoint, conditions: { ...endpoint.conditions, ready: false, serving: false } }
  })
  return { ...slice, endpoints }
}

/** The backends that are down, with the reason of each. */
export function downBackends({ backends }: BackendHealth): ReadonlyMap<string, string> {
  return new Map(backends.filter(({ up }) => !up).map(({ address, message = '' }) => [address, message]))
}
