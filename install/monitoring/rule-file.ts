/** All alerts, as a Prometheus rule file and as objects for its Operator. */
import { type ManifestObject, partLabels } from '../values/values.ts'
import { type Alert, type AlertGroup, BROKER_ALERTS, LANE_ALERTS, MEMBER_ALERTS } from './alerts.ts'

export const ALERT_GROUPS: readonly AlertGroup[] = [LANE_ALERTS, MEMBER_ALERTS, BROKER_ALERTS]

/** A path in a checkout. Operators put the address of their copy before it. */
export const RUNBOOKS = 'docs/runbooks/'

/** A Prometheus rule file. */
export interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[]
}

export interface Rule {
  readonly alert: string
  readonly expr: string
  readonly for: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}

export function ruleFile(groups: readonly AlertGroup[] = ALERT_GROUPS): RuleFile {
  return { groups: groups.map(({ name, alerts }) => ({ name, rules: alerts.map(ruleOf) })) }
}

/** The rules about a cluster, or about the broker. */
export function prometheusRule(about: AlertGroup['about'], namespace: string): ManifestObject {
  return {
    apiVersion: 'monitoring.coreos.com/v1',
    kind: 'PrometheusRule',
    metadata: { name: `sealane-${about}`, namespace, labels: partLabels(undefined) },
    spec: ruleFile(ALERT_GROUPS.filter((group) => group.about === about)),
  }
}

function ruleOf({ name, severity, expr, for: held, summary, says, code }: Alert): Rule {
  const text = typeof code === 'string' ? code : `{{ $labels.${code.label} }}`
  return {
    alert: name,
    expr,
    for: held,
    labels: { severity },
    annotations: {
      summary,
      description: `${says} Reason code: ${text} (docs/troubleshooting.md).`,
      runbook_url: `${RUNBOOKS}${name}.md`,
    },
  }
}
