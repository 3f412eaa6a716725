/** The queries of dashboards, as Grafana sends them with nothing chosen. */
import type { ALL_DASHBOARDS } from '../../../install/monitoring/all-dashboards.ts'
import type { Sample } from './prometheus.ts'

export interface PanelQuery {
  /** `sealane-calls: Calls by service` */
  readonly panel: string
  readonly expr: string
}

export function queriesOf(dashboards: typeof ALL_DASHBOARDS): readonly PanelQuery[] {
  return dashboards.flatMap(({ uid, panels }) =>
    panels.flatMap(({ title, queries }) =>
      queries.map(({ expr }) => ({
        panel: `${uid}: ${title}`,
        expr: expr.replaceAll(/\$(cluster|service|caller)/g, '.*'),
      })),
    ),
  )
}

/** Whether a panel would draw something. */
export function hasData(samples: readonly Sample[]): boolean {
  return samples.some(({ value: [, text] }) => Number.isFinite(Number(text)))
}
