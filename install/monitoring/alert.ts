/** The alerts, before they are written as rules of Prometheus. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/** critical: users notice, or will within hours. warning: to be looked at today. info: worth knowing. */
export const ALERT_SEVERITIES = ['critical', 'warning', 'info'] as const
export type AlertSeverity = (typeof ALERT_SEVERITIES)[number]

export interface Alert {
  /** Also that of its runbook: docs/runbooks/NAME.md. */
  readonly name: `Sealane${string}`
  readonly severity: AlertSeverity
  /** PromQL. Metrics by their names, durations as Prometheus writes them. */
  readonly expr: string
  /** How long it must hold, as Prometheus writes it. */
  readonly for: string
  /** One line; `{{ $labels.x }}` for a label that the expression keeps. */
  readonly summary: string
  /** One sentence: what is known. */
  readonly says: string
  /** What it is called in conditions, logs and `sealane status`; `label`: the series says it. */
  readonly code: ReasonCode | LabelledCode
}

/** The code is the value of this label. */
export interface LabelledCode {
  readonly label: 'code' | 'reason'
}

export interface AlertGroup {
  readonly name: string
  /** Whom it is for: a cluster of a clusterset, or the broker. */
  readonly about: 'member' | 'broker'
  readonly alerts: readonly Alert[]
}

/** Series of one process, with the id of its cluster. */
export function ofMember(series: string): string {
  return `${series} * on (job, instance) group_left (member) sealane_member_info`
}

/** Of the agent that acts: one that stands by may still show what was so when it acted. */
export function acting(series: string): string {
  return ofMember(`(${series} and on (job, instance) (time() - sealane_member_looked_timestamp_seconds < 120))`)
}
