/**
 * Validates facts from drivers or files for the checks. Never throws: unusable facts are listed, and the others count.
 * The order of the facts does not matter.
 */
import { fitText, printable } from '../../model/model.ts'
import type { FactObjects, UnansweredFact } from './fact.ts'
import { PROBE_KINDS, PROBE_NAMES, PROBE_SHAPES, type ProbeItems, type ProbeKind } from './probe-shapes.ts'
import { FACT_KINDS, type FactKind, OBJECT_SHAPES, type PartReport, factSetShape, factShape } from './shapes.ts'

/** An object with its source and RFC 3339 time. */
export interface Seen<T> {
  readonly object: T
  readonly source: string
  readonly at: string
}

/** Facts that are well-formed, without duplicates. */
export interface KnownFacts {
  /** The time of the collection, as RFC 3339 and in milliseconds since 1970. */
  readonly takenAt: string
  readonly nowMs: number
  readonly target: string
  /** Objects sorted by name. Undefined for a kind that could not be read. */
  readonly objects: { readonly [K in FactKind]?: readonly Seen<FactObjects[K]>[] }
  readonly reports: readonly Seen<PartReport>[]
  /** Results sorted by name. Undefined for a kind that was not probed. */
  readonly probes: { readonly [K in ProbeKind]?: readonly Seen<ProbeItems[K]>[] }
  readonly unanswered: readonly UnansweredFact[]
  /** Descriptions of malformed facts. */
  readonly malformed: readonly MalformedFact[]
}

export interface MalformedFact {
  readonly what: string
  readonly problem: string
  readonly source: string
  readonly at: string
}

/** The number of malformed facts that are listed. The others are counted in one entry. */
const MOST_MALFORMED = 20

/** Takes any value. If it is not a FactSet, the result has one malformed fact. */
export function readFacts(value: unknown): KnownFacts {
  const set = factSetShape.safeParse(value)
  if (!set.success) {
    const malformed = { what: 'facts', problem: problemOf(set.error), source: 'the facts themselves', at: EPOCH }
    return { takenAt: EPOCH, nowMs: 0, target: '', ...NOTHING, malformed: [malformed] }
  }
  const { takenAt, target, facts } = set.data
  const reading = new Reading(takenAt)
  for (const fact of facts) reading.take(fact)
  return { takenAt, nowMs: Date.parse(takenAt), target: printable(target), ...reading.result() }
}

const NOTHING = { objects: {}, reports: [], probes: {}, unanswered: [] }
const EPOCH = '1970-01-01T00:00:00Z'

class Reading {
  readonly #takenAt: string
  readonly #objects = new Map<FactKind, Map<string, Seen<unknown>>>()
  readonly #reports = new Map<string, Seen<PartReport>>()
  readonly #probes = new Map<ProbeKind, Map<string, Seen<unknown>>>()
  readonly #unanswered: UnansweredFact[] = []
  readonly #malformed: MalformedFact[] = []

  constructor(takenAt: string) {
    this.#takenAt = takenAt
  }

  take(value: unknown): void {
    const read = factShape.safeParse(value)
    if (!read.success) {
      const said = { source: sourceOf(value), at: this.#takenAt }
      this.#malformed.push({ what: 'a fact', problem: problemOf(read.error), ...said })
      return
    }
    const fact = read.data
    switch (fact.t) {
      case 'objects':
        this.#takeObjects(fact)
        return
      case 'report':
        keepLatest(this.#reports, `${fact.report.part}/${fact.report.name}`, { ...fact, object: fact.report })
        return
      case 'probe':
        this.#takeProbes(fact)
        return
      case 'unanswered':
        this.#unanswered.push(fact)
    }
  }

  #takeObjects({ kind, items, source, at }: { kind: FactKind; items: unknown[]; source: string; at: string }): void {
    const known = this.#objects.get(kind) ?? new Map<string, Seen<unknown>>()
    this.#objects.set(kind, known)
    for (const item of items) {
      const read = OBJECT_SHAPES[kind].safeParse(item)
      const { name, namespace = '' } = nameOf(item)
      if (read.success) keepLatest(known, `${namespace}/${name}`, { object: item, source, at })
      else {
        const title = [namespace, name].filter((part) => part !== '').join('/')
        this.#malformed.push({ what: printable(`${kind} ${title}`), problem: problemOf(read.error), source, at })
      }
    }
  }

  #takeProbes({ kind, items, source, at }: { kind: ProbeKind; items: unknown[]; source: string; at: string }): void {
    const known = this.#probes.get(kind) ?? new Map<string, Seen<unknown>>()
    this.#probes.set(kind, known)
    for (const item of items) {
      const read = PROBE_SHAPES[kind].safeParse(item)
      if (!read.success) this.#malformed.push({ what: `Probe ${kind}`, problem: problemOf(read.error), source, at })
      else keepLatest(known, PROBE_NAMES[kind](read.data as never), { object: item, source, at })
    }
  }

  result(): Omit<KnownFacts, 'takenAt' | 'nowMs' | 'target'> {
    const objects = FACT_KINDS.flatMap((kind) => {
      const known = this.#objects.get(kind)
      return known === undefined ? [] : [[kind, sortedValues(known)] as const]
    })
    const probes = PROBE_KINDS.flatMap((kind) => {
      const known = this.#probes.get(kind)
      return known === undefined ? [] : [[kind, sortedValues(known)] as const]
    })
    return {
      objects: Object.fromEntries(objects),
      probes: Object.fromEntries(probes),
      reports: sortedValues(this.#reports),
      unanswered: this.#unanswered.sort(byText),
      malformed: fewer(this.#malformed.sort(byText)),
    }
  }
}

/** Keeps the later of two facts about the same object. For equal times, the choice does not depend on their order. */
function keepLatest<T>(known: Map<string, Seen<T>>, key: string, { object, source, at }: Seen<T>): void {
  const next = { object, source, at }
  const before = known.get(key)
  if (before === undefined || isLater(next, before)) known.set(key, next)
}

function isLater(a: Seen<unknown>, b: Seen<unknown>): boolean {
  const [aMs, bMs] = [Date.parse(a.at), Date.parse(b.at)]
  return aMs === bMs ? byText(a, b) > 0 : aMs > bMs
}

function sortedValues<T>(known: ReadonlyMap<string, T>): T[] {
  return [...known].sort(([a], [b]) => compare(a, b)).map(([, value]) => value)
}

function byText(a: unknown, b: unknown): number {
  return compare(textOf(a), textOf(b))
}

/** A value without a JSON text, from a faulty driver, must not end the reading. */
function textOf(value: unknown): string {
  try {
    return JSON.stringify(value)
  } catch {
    return ''
  }
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

function fewer(malformed: readonly MalformedFact[]): readonly MalformedFact[] {
  const [first] = malformed
  if (first === undefined || malformed.length <= MOST_MALFORMED) return malformed
  const rest = malformed.length - MOST_MALFORMED
  return [...malformed.slice(0, MOST_MALFORMED), { ...first, what: `${rest} more`, problem: 'not listed' }]
}

function nameOf(item: unknown): { readonly name: string; readonly namespace?: string } {
  const metadata = fieldOf(item, 'metadata')
  const [name, namespace] = [fieldOf(metadata, 'name'), fieldOf(metadata, 'namespace')]
  return {
    name: typeof name === 'string' ? name.slice(0, 300) : '?',
    ...(typeof namespace === 'string' ? { namespace: namespace.slice(0, 300) } : {}),
  }
}

function fieldOf(value: unknown, field: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, field)
    ? (value as Readonly<Record<string, unknown>>)[field]
    : undefined
}

/** Describes the first wrong field. */
function problemOf({
  issues,
}: {
  readonly issues: readonly { readonly path: PropertyKey[]; readonly message: string }[]
}): string {
  const [issue] = issues
  if (issue === undefined) return 'is not as expected'
  const field = issue.path.map(String).join('.')
  return printable(`${field === '' ? '' : `${field}: `}${issue.message}`).slice(0, 300)
}

const MOST_SOURCE = 200

/** The source that the value names, or '-'. */
function sourceOf(value: unknown): string {
  const source = typeof value === 'object' && value !== null && 'source' in value ? value.source : undefined
  return typeof source === 'string' && source !== '' ? fitText(printable(source), MOST_SOURCE) : '-'
}
