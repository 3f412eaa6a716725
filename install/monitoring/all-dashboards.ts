/** All dashboards, as files and as ConfigMaps for Grafana's sidecar. */
import { type ManifestObject, partLabels } from '../values/values.ts'
import { CALLS_DASHBOARD } from './calls-dashboard.ts'
import { CLUSTERSET_DASHBOARD } from './clusterset-dashboard.ts'
import { CONTROL_PLANE_DASHBOARD } from './control-plane-dashboard.ts'
import { type Dashboard, dashboardModel } from './dashboard.ts'
import { LANES_DASHBOARD } from './lanes-dashboard.ts'
import { SERVICES_DASHBOARD } from './services-dashboard.ts'

export const ALL_DASHBOARDS: readonly Dashboard[] = [
  CLUSTERSET_DASHBOARD,
  LANES_DASHBOARD,
  SERVICES_DASHBOARD,
  CALLS_DASHBOARD,
  CONTROL_PLANE_DASHBOARD,
]

export function dashboardText(dashboard: Dashboard): string {
  return `${JSON.stringify(dashboardModel(dashboard), undefined, 2)}\n`
}

/** ConfigMaps with the label by which the sidecar of Grafana's chart finds dashboards. */
export function dashboardConfigMaps(namespace: string): readonly ManifestObject[] {
  return ALL_DASHBOARDS.map((dashboard) => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: {
      name: `${dashboard.uid}-dashboard`,
      namespace,
      labels: { ...partLabels(undefined), grafana_dashboard: '1' },
    },
    data: { [`${dashboard.uid}.json`]: dashboardText(dashboard) },
  }))
}
