/** What is said on each Cluster about contact with it. Pure. */
import { CONDITION_IN_CONTACT, type ConditionFinding, findCondition, setCondition } from '../model/conditions.ts'
import type { Cluster } from '../model/objects.ts'

export interface ClusterStatusWorld {
  /** Milliseconds since 1970. */
  readonly nowMs: number
  /** All members but this one. */
  readonly clusters: readonly Cluster[]
  /** Members that the broker does not hear, and for how many milliseconds; undefined while the broker says nothing. */
  readonly silent: ReadonlyMap<string, number> | undefined
}

/** An agent that starts anew is back sooner. */
const SILENT_MS = 30_000

/** Clusters whose status is to be written. While the broker is away, what it said last stands. */
export function planClusterStatus({ nowMs, clusters, silent }: ClusterStatusWorld): readonly Cluster[] {
  if (silent === undefined) return []
  return clusters.flatMap((cluster) => {
    const before = cluster.status?.conditions ?? []
    const finding = judge(silent.get(cluster.spec.id), nowMs)
    const known = findCondition(before, CONDITION_IN_CONTACT)
    // Since when is said once: the clocks of two machines differ a little each time.
    if (finding === undefined || known?.status === finding.status) return []
    return [{ ...cluster, status: { ...cluster.status, conditions: setCondition(before, finding, nowMs) } }]
  })
}

function judge(silentForMs: number | undefined, nowMs: number): ConditionFinding | undefined {
  if (silentForMs === undefined) {
    return { type: CONDITION_IN_CONTACT, status: 'True', reason: 'Heard', message: 'the broker hears it' }
  }
  if (silentForMs < SILENT_MS) return undefined
  const since = new Date(nowMs - silentForMs).toISOString().replace(/\.\d+Z$/, 'Z')
  const message = `the broker has not heard it since ${since}`
  return { type: CONDITION_IN_CONTACT, status: 'False', reason: 'Silent', message }
}
