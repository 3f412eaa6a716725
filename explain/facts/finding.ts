/** The findings of checks, and their order once all causes are known. */
import { fitText, printable } from '../../model/model.ts'
import { type ReasonCode, reasonRow } from '../../model/reasons/reasons.ts'

/**
 * down: something that users rely on does not work.
 * degraded: it works, but the next fault may end that, or something no longer follows changes.
 * notice: worth knowing. The cluster counts as healthy.
 */
export const SEVERITIES = ['down', 'degraded', 'notice'] as const
export type Severity = (typeof SEVERITIES)[number]

/** Groups of checks. */
export const AREAS = ['access', 'membership', 'parts', 'broker', 'lanes', 'dns', 'services', 'host'] as const
export type Area = (typeof AREAS)[number]

/** The subject of a finding, mostly an object. */
export interface Subject {
  readonly kind: string
  readonly name: string
  readonly namespace?: string
}

/** A finding as a check gives it. */
export interface Finding {
  readonly reason: ReasonCode
  readonly severity: Severity
  readonly subject: Subject
  /** What was observed, as text. */
  readonly seen: string
  /** Where the observation comes from. */
  readonly source: string
  /** The RFC 3339 time of the observation. */
  readonly at: string
  /** The RFC 3339 time since when the state lasts, if a source reports it. */
  readonly since?: string
  /** The next step. If absent, that of the table of reasons is used. */
  readonly mend?: string
  /** Possible causes. The first one that is also found is used. */
  readonly because?: readonly Cause[]
  /** The area of the check. */
  readonly area?: Area
}

export interface Cause {
  readonly reason: ReasonCode
  /** If absent, a finding about any subject matches. */
  readonly subject?: Subject
}

/** A finding without a cause among the others, with all its consequences. */
export interface RankedFinding extends Omit<Finding, 'because' | 'mend' | 'area'> {
  /** The highest severity of the finding and its consequences. */
  readonly severity: Severity
  readonly mend: string
  /** The areas of the finding and its consequences, in the order of AREAS. */
  readonly areas: readonly Area[]
  /** One for each reason, the worst first. */
  readonly consequences: readonly Consequence[]
}

export interface Consequence {
  readonly reason: ReasonCode
  readonly severity: Severity
  readonly count: number
  /** Some of the subjects: `ServiceImport shop/web`. */
  readonly examples: readonly string[]
}

/** For example, `ServiceExport shop/web`. */
export function subjectText({ kind, namespace, name }: Subject): string {
  return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
}

export function worst(severities: readonly Severity[]): Severity | undefined {
  return SEVERITIES.find((severity) => severities.includes(severity))
}

// Orders findings by cause: consequences are listed under their cause, so that a dead gateway is one problem, not ten.
// Pure.

/** A few lines of a terminal. */
const MAX_TEXT = 600
const MAX_EXAMPLES = 5

/** The worst come first, then those with more consequences. The order of `findings` does not matter. */
export function rankFindings(findings: readonly Finding[], atSite = false): readonly RankedFinding[] {
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
      rankedFinding(root, root.reason === START ? consequences.map(asNotice) : consequences, atSite),
    )
    .sort(byWeight)
}

/** Findings that only a start explains are no faults yet. A start without consequences is dropped. */
const START: ReasonCode = 'Starting'

function asNotice(finding: Finding): Finding {
  return { ...finding, severity: 'notice' }
}

/** Merges findings with the same reason and subject: keeps the worst, with the causes of all. */
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

/** Whether `to` is `from` or one of its causes. Then it must not become its consequence too. */
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

function rankedFinding(root: Finding, below: readonly Finding[], atSite: boolean): RankedFinding {
  const { reason, subject, seen, source, at, since, mend = todoOf(reason, atSite) } = root
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

function todoOf(reason: ReasonCode, atSite: boolean): string {
  const { todo, todoAtSite = todo } = reasonRow(reason)
  return atSite ? todoAtSite : todo
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

/** Texts may contain names and messages from other clusters. */
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
