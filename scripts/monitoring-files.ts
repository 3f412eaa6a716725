/**
 * manifests/monitoring/: two components of Kustomize, for `base` and for the broker, with alerts and what scraping
 * needs; dashboards; and the same as files for a Prometheus without Operator and a Grafana without sidecar.
 */
import { ALL_DASHBOARDS, dashboardConfigMaps, dashboardText } from '../install/monitoring/all-dashboards.ts'
import { ruleFile, prometheusRule } from '../install/monitoring/rule-file.ts'
import { objectName } from '../install/values/names.ts'
import { openMetricsPatch } from '../install/workloads/pod.ts'
import { brokerMonitors } from '../install/workloads/workload.ts'
import { DEFAULT_VALUES, type InstallValues } from '../install/values/install-values.ts'
import { formatYaml } from '../kubeapi/yaml.ts'
import { HEADER, component, documents } from './manifest-text.ts'

const MONITORED: InstallValues = {
  ...DEFAULT_VALUES,
  metrics: { ...DEFAULT_VALUES.metrics, podMonitors: { ...DEFAULT_VALUES.metrics.podMonitors, enabled: true } },
}

/** Paths are relative to manifests/. */
export function monitoringFiles(): [string, string][] {
  const { member, broker } = DEFAULT_VALUES
  return [
    ['monitoring/rules.yaml', HEADER + formatYaml(ruleFile())],
    ...ALL_DASHBOARDS.map((one): [string, string] => [`monitoring/dashboards/${one.uid}.json`, dashboardText(one)]),
    ['monitoring/member/alerts.yaml', documents([prometheusRule('member', member.namespace)])],
    ['monitoring/member/dashboards.yaml', documents(dashboardConfigMaps(member.namespace))],
    [
      'monitoring/member/kustomization.yaml',
      component({ components: ['../../metrics'], resources: ['alerts.yaml', 'dashboards.yaml'] }),
    ],
    ['monitoring/broker/alerts.yaml', documents([prometheusRule('broker', broker.namespace)])],
    ['monitoring/broker/monitors.yaml', documents(brokerMonitors(MONITORED))],
    [
      'monitoring/broker/kustomization.yaml',
      component({ resources: ['alerts.yaml', 'monitors.yaml'], patches: openBroker() }),
    ],
  ]
}

/** In both of its forms. */
function openBroker(): readonly object[] {
  return ['StatefulSet', 'Deployment'].map((kind) => ({
    target: { kind, name: objectName('broker') },
    patch: formatYaml(openMetricsPatch()),
  }))
}
