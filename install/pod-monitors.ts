/**
 * Says to the Prometheus Operator where to scrape (monitoring.coreos.com/v1): one PodMonitor for each part, by the name
 * of the port of its status page.
 */
import type { ManifestObject } from './manifest-object.ts'
import { selectorLabels } from './names.ts'
import { STATUS_PORT_NAME } from './ports.ts'
import { when, whenIs, withOurs } from './template-value.ts'
import type { InstallValues } from './values.ts'
import { type PartRef, metadataOf } from './workload.ts'

/** To be spread into a list. A part on loopback has none: it could not be reached, and would be taken as down. */
export function memberMonitors(values: InstallValues): readonly ManifestObject[] {
  const { gateway, routeagent, metrics, member } = values
  const monitor = (part: PartRef['part']): ManifestObject => podMonitor({ part, namespace: member.namespace }, values)
  return when(
    metrics.podMonitors.enabled,
    monitor('agent'),
    monitor('dns'),
    ...whenIs(gateway.statusListen, 'node', monitor('gateway')),
    ...whenIs(routeagent.statusListen, 'node', monitor('routeagent')),
  )
}

export function brokerMonitors(values: InstallValues): readonly ManifestObject[] {
  const place: PartRef = { part: 'broker', namespace: values.broker.namespace }
  return when(values.metrics.podMonitors.enabled, podMonitor(place, values))
}

function podMonitor(place: PartRef, { metrics: { podMonitors } }: InstallValues): ManifestObject {
  const metadata = metadataOf(place)
  return {
    apiVersion: 'monitoring.coreos.com/v1',
    kind: 'PodMonitor',
    metadata: { ...metadata, labels: withOurs(metadata.labels, podMonitors.labels) ?? {} },
    spec: {
      selector: { matchLabels: selectorLabels(place.part) },
      podMetricsEndpoints: [{ port: STATUS_PORT_NAME, path: '/metrics', interval: podMonitors.interval }],
    },
  }
}
