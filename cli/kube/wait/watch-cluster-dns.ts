/**
 * Waits until the cluster's own DNS has read its new settings: before that, no name of the clusterset has an answer.
 */
import { CONDITION_CLUSTER_DNS } from '../../../model/conditions.ts'
import { CLUSTERSET_ZONE } from '../../../model/spec-constants.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { conditionsOf } from '../access/object-status.ts'
import { type Missing, TookTooLong, waitUntil } from './wait-until.ts'

export interface WatchDnsInit {
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/**
 * `own` is this cluster's id. When the time is over, gives what is still missing as a sentence: the lanes are up all
 * the same, and a cluster's DNS may take minutes.
 */
export async function watchClusterDns(
  admin: Pick<ClusterAdmin, 'get'>,
  own: string,
  init: WatchDnsInit,
): Promise<string | undefined> {
  const { signal, say } = init
  let last: Missing | undefined
  try {
    const look = async (): Promise<Missing | undefined> => (last = await progress(admin, own, signal))
    await waitUntil(look, { ...init, what: 'the cluster DNS', hint: '' })
  } catch (error) {
    if (!(error instanceof TookTooLong)) throw error
    return `it does not hand ${CLUSTERSET_ZONE} to Sealane yet${last?.why === undefined ? '' : ` (${last.why})`}`
  }
  say(`cluster DNS hands ${CLUSTERSET_ZONE} to Sealane\n`)
  return undefined
}

/** The agent asks as any pod does, and writes the answers into the status of this cluster's own Cluster. */
async function progress(
  admin: Pick<ClusterAdmin, 'get'>,
  own: string,
  signal: AbortSignal,
): Promise<Missing | undefined> {
  const cluster = await admin.get({ apiVersion: 'sealane.io/v1alpha1', kind: 'Cluster', name: own }, signal)
  const found = cluster && conditionsOf(cluster).find(({ type }) => type === CONDITION_CLUSTER_DNS)
  if (found?.status === 'True') return undefined
  const why = found === undefined ? 'the agent does not say' : found.message
  return { what: `to hand ${CLUSTERSET_ZONE} to Sealane`, why }
}
