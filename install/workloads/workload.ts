/** Builds Deployments, DaemonSets, disruption budgets, ServiceAccounts and PodMonitors. */
import { LABEL_ZONE, type NodeRequirement, machineTerms } from '../../model/model.ts'
import {
  type InstallValues,
  type ManifestObject,
  type PartName,
  STATUS_PORT_NAME,
  objectName,
  partLabels,
  selectorLabels,
  when,
  whenIs,
  withOurs,
} from '../values/values.ts'

export interface PartRef {
  readonly part: PartName
  readonly namespace: string
}

export function metadataOf({ part, namespace }: PartRef): ManifestObject['metadata'] {
  return { name: objectName(part), namespace, labels: partLabels(part) }
}

/** Pods that need a token request it in their spec. No other pod with this account gets one. */
export function serviceAccount(place: PartRef): ManifestObject {
  return { apiVersion: 'v1', kind: 'ServiceAccount', metadata: metadataOf(place), automountServiceAccountToken: false }
}

export function deployment(place: PartRef, replicas: number, template: unknown): ManifestObject {
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: metadataOf(place),
    spec: {
      replicas,
      revisionHistoryLimit: 3,
      selector: { matchLabels: selectorLabels(place.part) },
      strategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } },
      template,
    },
  }
}

/** `settleSeconds` is the time from the readiness of a new pod until the next pod may be replaced. */
export function daemonSet(
  place: PartRef,
  { maxUnavailable, settleSeconds = 0 }: { readonly maxUnavailable: number | string; readonly settleSeconds?: number },
  template: unknown,
): ManifestObject {
  return {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: metadataOf(place),
    spec: {
      revisionHistoryLimit: 3,
      ...(settleSeconds === 0 ? {} : { minReadySeconds: settleSeconds }),
      selector: { matchLabels: selectorLabels(place.part) },
      updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable } },
      template,
    },
  }
}

/** Only one pod at a time may be evicted. Pods that are not ready do not block a drain. */
export function disruptionBudget(place: PartRef): ManifestObject {
  return {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: metadataOf(place),
    spec: {
      maxUnavailable: 1,
      unhealthyPodEvictionPolicy: 'AlwaysAllow',
      selector: { matchLabels: selectorLabels(place.part) },
    },
  }
}

/**
 * Pod spec fields that spread pods over the machines and zones if possible, but never prevent them from running. Zones use
 * affinity: the scheduler ignores all soft spread constraints of a pod on nodes that lack one of their labels, and many
 * clusters have no zones.
 */
export function spread(part: PartName): Readonly<Record<string, unknown>> {
  const labelSelector = { matchLabels: selectorLabels(part) }
  const zone = { weight: 100, podAffinityTerm: { topologyKey: LABEL_ZONE, labelSelector } }
  return {
    topologySpreadConstraints: [
      { maxSkew: 1, topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'ScheduleAnyway', labelSelector },
    ],
    affinity: {
      nodeAffinity: onMachines(),
      podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [zone] },
    },
  }
}

/** A node affinity (core/v1) that leaves out virtual nodes and nodes without Linux. `more` are further requirements. */
export function onMachines(more: readonly NodeRequirement[] = []): unknown {
  return { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: machineTerms(more) } }
}

// Tells the Prometheus Operator where to scrape (monitoring.coreos.com/v1): one PodMonitor for each part, by the name
// of the status page's port.

/**
 * To be spread into a list. A part on loopback has no PodMonitor: Prometheus could not reach it and would report it as
 * down.
 */
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
