/** Reads the objects that the plan of a flavour needs, and applies a plan. */
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { UserError } from '../../runtime/runtime.ts'
import { titleOf, type ObjectRef } from '../../kubeapi/kube/kube.ts'
import type { ClusterDnsClient, ClusterDnsFlavour, ClusterDnsPlan, DnsObject } from './dns-change.ts'
import { clusterDnsReads } from './plan-cluster-dns.ts'

const TRIES = 5

export interface ClusterDnsResult {
  /** The plan that was applied. If it has problems, nothing was changed. */
  readonly plan: ClusterDnsPlan
  /** The workloads that the user has to restart for the change to take effect. */
  readonly toRestart: readonly ObjectRef[]
}

/**
 * Reads, plans and writes, and repeats that if another client has written in between. Throws UserError after several
 * attempts, and what the client throws.
 */
export async function applyClusterDns(
  client: ClusterDnsClient,
  flavour: ClusterDnsFlavour,
  plan: (present: readonly DnsObject[]) => ClusterDnsPlan,
  signal: AbortSignal,
): Promise<ClusterDnsResult> {
  const restarts = new Map<string, ObjectRef>()
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const planned = plan(await readClusterDns(client, flavour, signal))
    if (planned.problems.length > 0) return { plan: planned, toRestart: [...restarts.values()] }
    let lost = false
    for (const change of planned.changes) {
      lost ||= !(await client.replace(change, signal))
      if (lost) break
      if (change.effect.how === 'restart') restarts.set(titleOf(change.effect.workload), change.effect.workload)
    }
    if (lost) continue
    const toRestart: ObjectRef[] = []
    for (const workload of restarts.values()) {
      if (!(await restarted(client, workload, signal))) toRestart.push(workload)
    }
    return { plan: planned, toRestart }
  }
  throw new UserError('another client changed the settings of the cluster DNS during each attempt', {
    hint: 'find the other client (kubectl get -o yaml --show-managed-fields), then try again',
  })
}

async function restarted(client: ClusterDnsClient, workload: ObjectRef, signal: AbortSignal): Promise<boolean> {
  if (client.restart === undefined) return false
  try {
    await client.restart(workload, signal)
    return true
  } catch (error) {
    if (error instanceof ClusterApiError && error.code === 'NotFound') return false
    throw error
  }
}

/** The objects of a flavour that exist. */
export async function readClusterDns(
  client: ClusterDnsClient,
  flavour: ClusterDnsFlavour,
  signal: AbortSignal,
): Promise<readonly DnsObject[]> {
  const found = await Promise.all(clusterDnsReads(flavour).map((ref) => client.get(ref, signal)))
  return found.filter((object) => object !== undefined)
}
