/** What a check finds, and what becomes of it once all causes are known. */
import { fitText, printable } from '../../model/model.ts'
import { type ReasonCode, reasonRow } from '../../model/reasons/reasons.ts'

/**
 * down: something that users rely on does not work. degraded: it works, and the next fault may end that, or something
 * does not follow changes any more. notice: worth knowing; the cluster counts as healthy.
 */
export const SEVERITIES = ['down', 'degraded', 'notice'] as const
export type Severity = (typeof SEVERITIES)[number]

/** What is looked at together. */
export const AREAS = ['access', 'membership', 'parts', 'broker', 'lanes', 'dns', 'services', 'host'] as const
export type Area = (typeof AREAS)[number]

/** What a finding is about: mostly an object. */
export interface Subject {
  readonly kind: string
  readonly name: string
  readonly namespace?: string
}

/** As a check gives it. */
export interface Finding {
  readonly reason: ReasonCode
  readonly severity: Severity
  readonly subject: Subject
  /** What was seen, in words. */
  readonly seen: string
  /** Who said so. */
  readonly source: string
  /** RFC 3339: when. */
  readonly at: string
  /** RFC 3339: since when it is so, where somebody says that. */
  readonly since?: string
  /** The next step. Absent: what the table of reasons says. */
  readonly mend?: string
  /** What it follows from, where that is found too; the first that is counts. */
  readonly because?: readonly Cause[]
  /** Of the check that found it. */
  readonly area?: Area
}

export interface Cause {
  readonly reason: ReasonCode
  /** Absent: about whatever. */
  readonly subject?: Subject
}

/** A finding without a cause among the others, with all that follows from it. */
export interface RankedFinding extends Omit<Finding, 'because' | 'mend' | 'area'> {
  /** That of the worst that follows from it, where that is worse. */
  readonly severity: Severity
  readonly mend: string
  /** Of all that is in it, in the order of AREAS. */
  readonly areas: readonly Area[]
  /** One for each reason, the worst first. */
  readonly consequences: readonly Consequence[]
}

export interface Consequence {
  readonly reason: ReasonCode
  readonly severity: Severity
  readonly count: number
  /** A few of them: `ServiceImport shop/web`. */
  readonly examples: readonly string[]
}

/** `ServiceExport shop/web` */
export function subjectText({ kind, namespace, name }: Subject): string {
  return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
}

export function worst(severities: readonly Severity[]): Severity | undefined {
  return SEVERITIES.find((severity) => severities.includes(severity))
}

// Orders findings by cause: what follows from another finding is counted under it, so that a dead gateway is one problem
// and not ten. Pure.

/** A line or two of a terminal. */
const MAX_TEXT = 600
const MAX_EXAMPLES = 5

/** The worst first; of equals the one with more consequences. Whatever the order of `findings`. */
export function rankFindings(findings: readonly Finding[]): readonly RankedFinding[] {
  const all = withoutDoubles(findings)
  const parents = parentsOf(all)
  const members = new Map<Finding, Finding[]>()
  for (const one of all) {
    const root = rootOf(one, parents)
    members.set(root, [...(members.get(root) ?? []), ...(root === one ? [] : [one])])
  }
  return [...members]
    .filter(([{ reason }, consequences]) => reason !== START || consequences.length > 0)
    .map(([root, consequences]) =>
      root.reason === START ? rankedFinding(root, consequences.map(asNotice)) : rankedFinding(root, consequences),
    )
    .sort(byWeight)
}

/** What follows from a start alone is no fault yet; a start that nothing follows from is no news. */
const START: ReasonCode = 'Starting'

function asNotice(finding: Finding): Finding {
  return { ...finding, severity: 'notice' }
}

/** One reason about one subject is one finding: the worst of them, with the causes of all. */
function withoutDoubles(findings: readonly Finding[]): readonly Finding[] {
  const known = new Map<string, Finding>()
  for (const next of [...findings].sort((a, b) => compare(textOf(a), textOf(b)))) {
    const key = keyOf(next)
    const before = known.get(key)
    known.set(key, before === undefined ? next : merged(before, next))
  }
  return [...known].sort(([a], [b]) => compare(a, b)).map(([, finding]) => finding)
}

function merged(a: Finding, b: Finding): Finding {
  const [first, second] = weightOf(a) <= weightOf(b) ? [a, b] : [b, a]
  return { ...first, because: [...(first.because ?? []), ...(second.because ?? [])] }
}

function parentsOf(all: readonly Finding[]): ReadonlyMap<Finding, Finding> {
  const bySubject = new Map(all.map((finding) => [keyOf(finding), finding]))
  const byReason = new Map<string, Finding>()
  for (const finding of all) if (!byReason.has(finding.reason)) byReason.set(finding.reason, finding)
  const parents = new Map<Finding, Finding>()
  for (const finding of all) {
    const found = (finding.because ?? [])
      .map(({ reason, subject }: Cause) =>
        subject === undefined ? byReason.get(reason) : bySubject.get(keyOf({ reason, subject })),
      )
      .find((cause) => cause !== undefined && !leadsTo(cause, finding, parents))
    if (found !== undefined) parents.set(finding, found)
  }
  return parents
}

/** Whether `to` is `from` or one of its causes: it must not become its consequence as well. */
function leadsTo(from: Finding, to: Finding, parents: ReadonlyMap<Finding, Finding>): boolean {
  let at: Finding | undefined = from
  while (at !== undefined) {
    if (at === to) return true
    at = parents.get(at)
  }
  return false
}

function rootOf(finding: Finding, parents: ReadonlyMap<Finding, Finding>): Finding {
  let at = finding
  for (let next = parents.get(at); next !== undefined; next = parents.get(at)) at = next
  return at
}

function rankedFinding(root: Finding, below: readonly Finding[]): RankedFinding {
  const { reason, subject, seen, source, at, since, mend = reasonRow(reason).todo } = root
  const { kind, name, namespace } = subject
  const place = namespace === undefined ? {} : { namespace: clean(namespace) }
  return {
    reason,
    severity: worst([root, ...below].map(({ severity }) => severity)) ?? root.severity,
    subject: { kind: clean(kind), name: clean(name), ...place },
    seen: clean(seen),
    source: clean(source),
    at: clean(at),
    ...(since === undefined ? {} : { since: clean(since) }),
    mend: clean(mend),
    areas: AREAS.filter((area) => [root, ...below].some((one) => one.area === area)),
    consequences: counted(below),
  }
}

function counted(findings: readonly Finding[]): readonly Consequence[] {
  const groups = new Map<ReasonCode, Finding[]>()
  for (const one of findings) groups.set(one.reason, [...(groups.get(one.reason) ?? []), one])
  return [...groups]
    .map(([reason, all]): Consequence => {
      const severity = worst(all.map((one) => one.severity)) ?? 'notice'
      const subjects = all.map(({ subject }) => clean(subjectText(subject))).sort()
      return { reason, severity, count: all.length, examples: subjects.slice(0, MAX_EXAMPLES) }
    })
    .sort((a, b) => weightOf(a) - weightOf(b) || b.count - a.count || compare(a.reason, b.reason))
}

/** Names and messages of other clusters are in it. */
function clean(text: string): string {
  return fitText(printable(text), MAX_TEXT)
}

function byWeight(a: RankedFinding, b: RankedFinding): number {
  return weightOf(a) - weightOf(b) || below(b) - below(a) || compare(keyOf(a), keyOf(b))
}

function below({ consequences }: RankedFinding): number {
  return consequences.reduce((sum, { count }) => sum + count, 0)
}

function weightOf({ severity }: Pick<Finding, 'severity'>): number {
  return SEVERITIES.indexOf(severity)
}

function keyOf({ reason, subject }: Required<Cause>): string {
  return `${reason} ${subjectText(subject)}`
}

function textOf(finding: Finding): string {
  const { reason, severity, subject, seen, source, at } = finding
  return [keyOf({ reason, subject }), SEVERITIES.indexOf(severity), seen, source, at].join('\n')
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
