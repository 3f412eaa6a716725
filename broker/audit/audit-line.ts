/**
 * An event as one line of JSON. Pure. Whatever a stranger puts into a name: the line ends where it ends, and has at most
 * MAX_LINE_BYTES. Only ASCII goes out, the rest is escaped as JSON has it: no terminal that shows the log obeys it.
 */
import type { AuditEvent, AuditValue } from '../store/store.ts'

/** Of the format: grows when a field gets another meaning, or goes. New fields alone do not change it. */
export const AUDIT_VERSION = 1

/**
 * With the newline. A pipe takes that much in one piece (PIPE_BUF of Linux), and no container runtime splits it (CRI:
 * 16 KiB).
 */
export const MAX_LINE_BYTES = 4096

/** Characters that a text may have: the second and third where the line is too long with the ones before. */
const TEXT_LIMITS = [256, 64, 16] as const
const MAX_DETAILS = 16
const MAX_ITEMS = 16

/**
 * `clusterset` is the one that it is of, unless it is the broker's own. Ends with a newline, and has no other. `cut` is in it when any
 * text or list of it is not whole.
 */
export function auditLine(event: AuditEvent, clusterset?: string): string {
  for (const limit of TEXT_LIMITS) {
    const line = lineOf(event, new Cutter(limit), clusterset)
    if (line.length <= MAX_LINE_BYTES) return line
  }
  // Sixteen characters of each text are too much only where there are many details.
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
    // Ours, and whole also where texts are cut.
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

/** RFC 3339 in UTC, to the millisecond. A clock beyond all calendars is one at 1970. */
function timeText(atMs: number): string {
  const ms = Math.abs(atMs) <= 8.64e15 ? atMs : 0
  const text = new Date(ms).toISOString()
  // RFC 3339 has years of four digits.
  return /^\d{4}-/.test(text) ? text : new Date(0).toISOString()
}

/** JSON escapes what is below U+0020; DEL, C1 controls, line separators and marks of direction are above. */
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
