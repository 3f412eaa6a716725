/** Deployments, their disruption budgets, and ServiceAccounts. */
import { LABEL_ZONE } from '../model/spec-constants.ts'
import type { ManifestObject } from './manifest-object.ts'
import { type PartName, objectName, partLabels, selectorLabels } from './names.ts'

export interface PartRef {
  readonly part: PartName
  readonly namespace: string
}

export function metadataOf({ part, namespace }: PartRef): ManifestObject['metadata'] {
  return { name: objectName(part), namespace, labels: partLabels(part) }
}

/** Pods that need a token ask for it themselves; nobody else gets one by using this account. */
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

/** `settleSeconds`: after a new pod is ready, until the next may be replaced. */
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

/** One pod at a time may be moved away. Pods that are not ready do not hold a drain up. */
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
 * Fields of a pod spec: over nodes and zones where there are several; never a reason not to run. Zones by affinity,
 * since the scheduler disregards all soft spread constraints of a pod on nodes that lack one of their labels, and many
 * clusters have no zones.
 */
export function spread(part: PartName): Readonly<Record<string, unknown>> {
  const labelSelector = { matchLabels: selectorLabels(part) }
  const zone = { weight: 100, podAffinityTerm: { topologyKey: LABEL_ZONE, labelSelector } }
  return {
    topologySpreadConstraints: [
      { maxSkew: 1, topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'ScheduleAnyway', labelSelector },
    ],
    affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [zone] } },
  }
}
