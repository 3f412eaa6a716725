/** The items of a bundle. Each has its own size limit and time limit, and fails on its own. */
import { Buffer } from 'node:buffer'
import type { FactSet } from '../../explain/facts/facts.ts'
import { printable } from '../../model/model.ts'
import { orAborted } from '../../reconcile/reconcile.ts'
import { formatDuration, messageOf } from '../../runtime/runtime.ts'
import { withinTime } from '../context/context.ts'
import { type Allowed, type AllowedFields, LEFT_OUT, factsLetOut, fields, letOut, objectLetOut } from './kind-fields.ts'
import { Redactor } from './redactor.ts'
import { type TarFile, isTarName } from './tar.ts'

// Filters logs and metrics for a bundle, line by line.

const ERROR = fields('type message code')

/** The fields of Sealane's own log lines. A key that is not in this list is kept without its value. */
export const LOG_FIELDS: AllowedFields = fields(
  'time level component msg reason why ' +
    'accepted address addresses advice audit authority batch before brokers by cause cidrs cluster clusters ' +
    'clusterset code command commands count device due endpoint epoch error family field file files fingerprint flows ' +
    'folder from gateway had holder host hub hubs identity ids index insteadOf items kind lane leader lease left limit lines ' +
    'link links listen loop machine members method minutes name namespace nice node notCarried note objects octets of ' +
    'other path peer place port ports protocol query range record refused relay remoteLane renumbered revision said ' +
    'seconds serial service services signal sockets subject takenAt term text to todo until upstream used what',
  { error: 'plain' },
)
/** With the fields in which pino writes unexpected errors. */
const WITH_ERRORS: AllowedFields = { ...LOG_FIELDS, err: { ...ERROR, cause: ERROR }, cause: ERROR }

/** A line with an optional prefix of journald, such as `2026-11-26T10:00:00+0000 host sealane[7]: `. */
const LINE = /^([^{]{0,200})(\{.*\})\s*$/

/** Filters Sealane's own lines by the list above. Other lines, such as a stack trace, are only redacted by patterns. */
function logLetOut(text: string, redactor: Redactor): string {
  const out: string[] = []
  let foreign: string[] = []
  const flush = (): void => {
    // These lines are redacted together, because a certificate has several lines.
    if (foreign.length > 0) out.push(redactor.text(foreign.join('\n')))
    foreign = []
  }
  for (const line of text.split('\n')) {
    const [, before = '', json = ''] = LINE.exec(line) ?? []
    const said = fieldsIn(json)
    if (said === undefined) foreign.push(line)
    else {
      flush()
      const isOurs = typeof said['msg'] === 'string' && typeof said['level'] === 'string'
      const clean = redactor.value(said)
      out.push(redactor.text(before) + JSON.stringify(isOurs ? letOut(clean, WITH_ERRORS) : clean))
    }
  }
  flush()
  return out.join('\n')
}

function fieldsIn(json: string): Readonly<Record<string, unknown>> | undefined {
  if (json === '') return undefined
  try {
    return JSON.parse(json) as Readonly<Record<string, unknown>>
  } catch {
    return undefined
  }
}

const OUR_METRIC = /^(# (HELP|TYPE) )?(sealane|process|nodejs)_/

/** Drops lines that are not Sealane's, because another program may answer at the address. */
function metricsLetOut(text: string, redactor: Redactor): string {
  const lines = text.split('\n')
  const ours = lines.filter((line) => OUR_METRIC.test(line))
  const others = lines.filter((line) => line !== '' && !OUR_METRIC.test(line)).length
  return `${others === 0 ? '' : `# ${LEFT_OUT}: ${others} lines\n`}${ours.map((line) => metricLine(line, redactor)).join('\n')}\n`
}

/** The values of labels are escaped. */
function metricLine(line: string, redactor: Redactor): string {
  if (line.startsWith('#')) return redactor.text(line)
  return line.replace(/(\w+)=("(?:[^"\\]|\\.)*")/g, (_all: string, label: string, quoted: string) => {
    const said = fieldsIn(`{"${label}":${quoted}}`)
    return said === undefined
      ? `${label}="${LEFT_OUT}"`
      : `${label}=${JSON.stringify(Object.values(redactor.value(said) as object)[0])}`
  })
}

export interface BundleItem {
  /** Its file in the bundle, below ROOT: `plans/127.0.0.1:9471.txt`. */
  readonly name: string
  readonly ms: number
  readonly maxBytes: number
  /**
   * The part of a too long text that is kept: logs keep their end, other texts their beginning. If undefined, a too
   * long item is left out.
   */
  readonly keeps?: 'beginning' | 'end'
  readonly ask: (signal: AbortSignal) => Promise<Answer>
}

/**
 * The type of an answer determines its filter: `items` are filtered by the fields of their kind, `json` by `allowed`,
 * and everything else by patterns alone.
 */
export type Answer =
  | { readonly text: string }
  | { readonly log: string }
  | { readonly metrics: string }
  | { readonly items: readonly object[]; readonly kind: string }
  | { readonly facts: FactSet }
  | { readonly json: unknown; readonly allowed?: Allowed }

export interface Missing {
  readonly item: string
  readonly why: string
}

export interface Collected {
  readonly files: readonly TarFile[]
  readonly missing: readonly Missing[]
}

/** All files are in this directory of the archive. */
export const ROOT = 'sealane-gather/'

/** The maximum size of all files before compression. */
const MAX_TOTAL = 96 << 20

/** Asks all questions at once. Rejects only after the signal. */
export async function collect(items: readonly BundleItem[], signal: AbortSignal): Promise<Collected> {
  const redactor = new Redactor()
  const answers = await Promise.all(items.map(async (item) => ({ item, answer: await answerOf(item, signal) })))
  signal.throwIfAborted()
  const missing: Missing[] = []
  const asked: { readonly item: BundleItem; readonly found: LetOut }[] = []
  for (const { item, answer } of answers) {
    if ('why' in answer) missing.push({ item: item.name, why: printable(redactor.text(answer.why)).slice(0, 500) })
    else asked.push({ item, found: letOutOf(answer, redactor) })
  }
  const files: TarFile[] = []
  let total = 0
  for (const { item, found } of asked) {
    const content = bounded(item, Buffer.from(finishedText(found, redactor)))
    const why = content === undefined ? `larger than ${item.maxBytes} bytes` : 'the bundle is full'
    if (content === undefined || total + content.length > MAX_TOTAL) missing.push({ item: item.name, why })
    else {
      total += content.length
      files.push({ name: item.name, content })
    }
  }
  return { files, missing: missing.map(({ item, why }) => ({ item, why: redactor.finish(why) })) }
}

/** A filtered answer, before the secrets from all answers are known. */
type LetOut = { readonly text: string } | { readonly value: unknown }

/**
 * Patterns are applied before fields are dropped, so that a secret in a dropped field is still recognized elsewhere.
 */
function letOutOf(answer: Answer, redactor: Redactor): LetOut {
  if ('text' in answer) return { text: redactor.text(answer.text) }
  if ('log' in answer) return { text: logLetOut(answer.log, redactor) }
  if ('metrics' in answer) return { text: metricsLetOut(answer.metrics, redactor) }
  return { value: valueLetOut(answer, redactor) }
}

function finishedText(found: LetOut, redactor: Redactor): string {
  if ('text' in found) return redactor.finish(found.text)
  return `${JSON.stringify(redactor.finishValue(found.value), undefined, 1)}\n`
}

function valueLetOut(
  answer: Extract<Answer, { readonly items: unknown } | { readonly facts: unknown } | { readonly json: unknown }>,
  redactor: Redactor,
): unknown {
  if ('facts' in answer) return factsLetOut(redactor.value(answer.facts) as FactSet)
  if ('items' in answer) {
    return {
      items: answer.items.map((item) => objectLetOut(answer.kind, redactor.value({ ...item, kind: answer.kind }))),
    }
  }
  const value = redactor.value(answer.json)
  return answer.allowed === undefined ? value : letOut(value, answer.allowed)
}

async function answerOf(item: BundleItem, signal: AbortSignal): Promise<Answer | { readonly why: string }> {
  if (!isTarName(ROOT + item.name)) return { why: 'its name cannot be the name of a file' }
  try {
    return await withinTime(signal, item.ms, (limited) => orAborted(item.ask(limited), limited))
  } catch (error) {
    signal.throwIfAborted()
    const isLate = error instanceof Error && error.name === 'OutOfTime'
    return { why: isLate ? `no answer within ${formatDuration(item.ms)}` : messageOf(error) }
  }
}

/** Undefined if the content is too long and cannot be cut. */
function bounded({ maxBytes, keeps }: BundleItem, content: Buffer): Buffer | undefined {
  if (content.length <= maxBytes) return content
  if (keeps === undefined) return undefined
  const note = Buffer.from(`# cut: ${content.length} bytes were there\n`)
  if (keeps === 'end') return Buffer.concat([note, content.subarray(content.length - maxBytes)])
  return Buffer.concat([note, content.subarray(0, maxBytes)])
}

/** The facts that `sealane status` reads. */
export function factsItem(ms: number, gather: () => Promise<FactSet>): BundleItem {
  return { name: FACTS_FILE, ms, maxBytes: MAX_FACTS, ask: async () => ({ facts: await gather() }) }
}

/** The name of the file with the objects of a kind. */
export function objectsFile(kind: string): string {
  return `objects/${kind}.json`
}

/** The name of the file with the objects of a kind that belong to services which this member exports. */
export function exportedFile(kind: string): string {
  return `objects/exported/${kind}.json`
}

/** Of these kinds a bundle has all objects, whole, or none: without one of them, more would seem to be allowed. */
export const POLICY_KINDS: ReadonlySet<string> = new Set([
  'AccessPolicy',
  'ClusterAccessPolicy',
  'TrafficPolicy',
  'ClusterTrafficPolicy',
])
const MAX_LIST = 8 << 20
/** 10,000 policies, each with its version in force beside it. */
const MAX_POLICIES = 32 << 20

/** The maximum size of the list of a kind, in bytes. */
export function maxBytesOf(kind: string): number {
  return POLICY_KINDS.has(kind) ? MAX_POLICIES : MAX_LIST
}

/** The name of the file with the facts. */
export const FACTS_FILE = 'facts.json'
export const MAX_FACTS = 48 << 20
