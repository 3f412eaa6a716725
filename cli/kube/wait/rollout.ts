/** Whether the pods of Deployments, DaemonSets and StatefulSets are what was asked for. Pure. */

export interface WorkloadShape {
  readonly metadata: { readonly name: string; readonly generation?: number }
  readonly spec?: { readonly replicas?: number }
  readonly status?: {
    readonly observedGeneration?: number
    readonly replicas?: number
    readonly readyReplicas?: number
    readonly updatedReplicas?: number
    readonly desiredNumberScheduled?: number
    readonly numberReady?: number
    readonly updatedNumberScheduled?: number
  }
}

export interface Rollout {
  readonly ready: number
  /** Undefined while its controller has not looked at it yet. */
  readonly wanted: number | undefined
}

/** Pods of an earlier version do not count. */
export function rolloutOf({ metadata, spec, status }: WorkloadShape): Rollout {
  if (status === undefined || status.observedGeneration !== metadata.generation) return { ready: 0, wanted: undefined }
  if (status.desiredNumberScheduled !== undefined) {
    const { numberReady = 0, updatedNumberScheduled = 0, desiredNumberScheduled } = status
    return { ready: Math.min(numberReady, updatedNumberScheduled), wanted: desiredNumberScheduled }
  }
  const { readyReplicas = 0, updatedReplicas = 0 } = status
  return { ready: Math.min(readyReplicas, updatedReplicas), wanted: spec?.replicas ?? 1 }
}

export function isRolledOut({ ready, wanted }: Rollout): boolean {
  return wanted !== undefined && ready >= wanted
}
