/** Durations as people write them: `500ms`, `10s`, `5m`, `24h`. */
import { InvalidValueError } from './host-port.ts'

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }
const DURATION = /^(\d{1,15}(?:\.\d{1,3})?)(ms|s|m|h)$/
const MAX_MS = 366 * 24 * 3_600_000

export interface DurationRange {
  readonly minMs?: number
  readonly maxMs?: number
}

/** Gives milliseconds. Throws InvalidValueError for other forms and for what is outside the range (0 to 366 days). */
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

/** The shortest exact form: 90000 is `90s`, 60000 is `1m`. */
export function formatDuration(ms: number): string {
  for (const unit of ['h', 'm', 's'] as const) {
    const size = UNIT_MS[unit] ?? 1
    if (ms >= size && ms % size === 0) return `${ms / size}${unit}`
  }
  return `${ms}ms`
}
