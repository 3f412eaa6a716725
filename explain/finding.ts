/** What a check finds, and what becomes of it once all causes are known. */
import type { ReasonCode } from '../model/reasons/reasons.ts'

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
