/**
 * Restore of a broker in a cluster: hands the backup to the broker through its pod, and starts the broker again, which then
 * takes it.
 */
import { createReadStream } from 'node:fs'
import { DEFAULT_VALUES, objectName } from '../../install/values/values.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type ClusterAdmin, withinTime } from '../context/context.ts'
import { isReady, waitUntil } from '../installation/installation.ts'
import { adminOfPod, brokerPods } from './pod-broker.ts'

export interface PodRestoreInit {
  readonly file: string
  /** Whether to replace a state that has members. */
  readonly force: boolean
  /** `--context c1`, for the commands that messages recommend. */
  readonly flags: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
  /** The time limit of each of the two steps: the broker takes the backup, and it starts again. */
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  readonly warn: (text: string) => void
}

type Admin = Pick<ClusterAdmin, 'title' | 'get' | 'list' | 'remove' | 'forward'>

const { namespace } = DEFAULT_VALUES.broker

/** Throws UserError with the message of the broker, and if no broker becomes ready within the time limit. */
export async function restoreIntoPod(admin: Admin, init: PodRestoreInit): Promise<void> {
  const { file, force, flags, timeoutMs, clock, signal, say, warn } = init
  await refuseReplicas(admin, signal)
  const [pod] = await brokerPods(admin, flags, signal)
  const parts = createReadStream(file) as AsyncIterable<Buffer>
  const { warnings } = await withinTime(signal, timeoutMs, (limited) =>
    adminOfPod(admin, pod, { ...init, signal: limited }).stageRestore({ force }, parts),
  )
  warnings.forEach(warn)
  const ref = { apiVersion: 'v1', kind: 'Pod', namespace, name: pod }
  const before = uidOf(await admin.get(ref, signal))
  say('restarting the broker, which restores the backup\n')
  await admin.remove(ref, signal)
  const look = async (): Promise<{ readonly what: string } | undefined> => {
    const now = await admin.get(ref, signal)
    return now !== undefined && uidOf(now) !== before && isReady(now) ? undefined : { what: `Pod ${namespace}/${pod}` }
  }
  const hint = `see: kubectl --namespace ${namespace} logs ${pod}`
  await waitUntil(look, { what: 'the broker to be ready', timeoutMs, clock, signal, say, hint })
}

/** The state directory of a replica is deleted with its pod, and a backup in it would be too. */
async function refuseReplicas(admin: Admin, signal: AbortSignal): Promise<void> {
  const ref = { apiVersion: 'apps/v1', kind: 'Deployment', namespace, name: objectName('broker') }
  if ((await admin.get(ref, signal)) === undefined) return
  throw new UserError(
    `${admin.title}: the backup cannot be restored into a pod, because the broker replicas keep their state in etcd`,
    {
      hint: 'restore etcd from one of its snapshots; nothing was changed',
    },
  )
}

function uidOf(object: { readonly metadata: object } | undefined): unknown {
  return (object?.metadata as { readonly uid?: unknown } | undefined)?.uid
}
