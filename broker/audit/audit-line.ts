/**
 * An event as one line of JSON. Pure. Whatever a client puts into a name, the line has no other newline and at most
 * MAX_LINE_BYTES. Other characters than ASCII are escaped as JSON requires, so that a terminal that shows the log does
 * not interpret them.
 */
import type { AuditEvent, AuditValue } from '../store/store.ts'

/** Version of the format. It increases when a field changes its meaning or is removed, not for new fields. */
export const AUDIT_VERSION = 1

/**
 * Includes the newline. A pipe takes this much in one piece (PIPE_BUF of Linux), and no container runtime splits it
 * (CRI: 16 KiB).
 */
export const MAX_LINE_BYTES = 4096

/** Limits of characters in a text. The next one applies if the line is too long with the one before. */
const TEXT_LIMITS = [256, 64, 16] as const
const MAX_DETAILS = 16
const MAX_ITEMS = 16

/**
 * `clusterset` is that of the event, or absent for the broker's own. The line ends with a newline and contains no
 * other. It contains `cut` if any text or list in it is shortened.
 */
export function auditLine(event: AuditEvent, clusterset?: string): string {
  for (const limit of TEXT_LIMITS) {
    const line = lineOf(event, new Cutter(limit), clusterset)
    if (line.length <= MAX_LINE_BYTES) return line
  }
  // With sixteen characters of each text, the line is too long only if there are many details.
  const { details: _tooMany, ...rest } = event
  return lineOf(rest, new Cutter(16, true), clusterset)
}

function lineOf(
  event: Omit<AuditEvent, 'details'> & Pick<AuditEvent, 'details'>,
  cutter: Cutter,
  clusterset: string | undefined,
): string {
  const { id, atMs, act, result, reason, who, subject, details = {}, tookMs } = event
  const actor = Object.entries(who).map(([key, value]) => [key, cutter.value(value as AuditValue)])
  const entries = Object.entries(details)
  const more = entries.slice(0, MAX_DETAILS).map(([key, value]) => [cutter.text(key), cutter.value(value)])
  if (entries.length > MAX_DETAILS) cutter.cut = true
  const object = {
    v: AUDIT_VERSION,
    time: timeText(atMs),
    // The broker creates the id, so it is never cut by the limits of texts.
    id: id.slice(0, 36),
    ...(clusterset === undefined ? {} : { clusterset }),
    result,
    ...(reason === undefined ? {} : { reason }),
    who: Object.fromEntries(actor) as Record<string, unknown>,
    what: {
      act,
      ...(subject === undefined ? {} : { subject: cutter.text(subject) }),
      ...(more.length === 0 ? {} : { details: Object.fromEntries(more) as Record<string, unknown> }),
    },
    ...(tookMs === undefined || !Number.isFinite(tookMs) ? {} : { ms: Math.max(0, Math.round(tookMs)) }),
    ...(cutter.cut ? { cut: true } : {}),
  }
  return `${asciiJson(object)}\n`
}

/** RFC 3339 in UTC, to the millisecond. Times beyond the range of Date become 1970. */
function timeText(atMs: number): string {
  const ms = Math.abs(atMs) <= 8.64e15 ? atMs : 0
  const text = new Date(ms).toISOString()
  // RFC 3339 has years of four digits.
  return /^\d{4}-/.test(text) ? text : new Date(0).toISOString()
}

/** JSON escapes characters below U+0020 only. DEL, C1 controls, line separators and directional marks are above. */
function asciiJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Shortens texts and lists, and notes that it did. */
class Cutter {
  cut: boolean
  readonly #limit: number

  constructor(limit: number, cut = false) {
    this.#limit = limit
    this.cut = cut
  }

  value(value: AuditValue): AuditValue {
    if (typeof value === 'string') return this.text(value)
    if (typeof value === 'number') return Number.isFinite(value) ? value : 0
    if (typeof value === 'boolean') return value
    if (value.length > MAX_ITEMS) this.cut = true
    return value.slice(0, MAX_ITEMS).map((item) => this.text(item))
  }

  text(text: string): string {
    if (text.length <= this.#limit) return text
    this.cut = true
    return text.slice(0, this.#limit)
  }
}
