/**
 * Backup and restore of a broker in a cluster: runs the same commands in its pod, and transfers the file through the
 * API server.
 */
import { closeSync, openSync, writeSync } from 'node:fs'
import { DEFAULT_VALUES, objectName } from '../../install/values/values.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import { WARNING, framed } from './backup-file.ts'
import { clustersetWords } from './which-clusterset.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { STATE, brokerPod, refusedInPod } from './pod-broker.ts'
import { isReady, waitUntil } from '../installation/installation.ts'

export interface PodBackupInit {
  /** `--context c1`, for the commands that messages recommend. */
  readonly flags: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
  /** The time limit of each step. */
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

type Admin = Pick<ClusterAdmin, 'title' | 'get' | 'list' | 'remove' | 'exec'>

const { namespace } = DEFAULT_VALUES.broker

/** Writes a backup into `target`, which must not exist. Throws UserError with the message from the broker's pod. */
export async function backupFromPod(admin: Admin, target: string, init: PodBackupInit): Promise<void> {
  const { flags, clusterset, timeoutMs, signal, say } = init
  const pod = await brokerPod(admin, { namespace, flags }, signal)
  const which = clustersetWords(clusterset)
  const command = ['sealane', 'broker', 'backup', '--state', STATE, ...which, '--output', '-']
  const file = openSync(target, 'wx', 0o600)
  try {
    const onStdout = (part: Buffer): void => writeAll(file, part)
    const place = { namespace, pod, container: 'broker', command }
    const { status, stderr } = await admin.exec({ ...place, onStdout, timeoutMs }, signal)
    if (status !== 0) throw refusedInPod(admin, stderr)
    sayWarnings(stderr, say)
  } finally {
    closeSync(file)
  }
}

/** Prints the warnings of a command in the pod that has succeeded. */
function sayWarnings(stderr: string, say: (text: string) => void): void {
  for (const line of stderr.split('\n')) if (line.startsWith(WARNING)) say(`${line}\n`)
}

function writeAll(file: number, part: Buffer): void {
  for (let at = 0; at < part.length;) at += writeSync(file, part, at)
}

/**
 * Transfers the file to the broker's pod and restarts the broker, which then replaces its state with the backup. Throws
 * UserError with the message from the broker's pod, and if no broker becomes ready within the time limit.
 */
export async function restoreIntoPod(
  admin: Admin,
  { file, force }: { readonly file: string; readonly force: boolean },
  init: PodBackupInit,
): Promise<void> {
  const { flags, clusterset, timeoutMs, clock, signal, say } = init
  await refuseReplicas(admin, signal)
  const pod = await brokerPod(admin, { namespace, flags }, signal)
  const words = [
    'broker',
    'restore',
    '-',
    '--framed',
    '--at-next-start',
    '--state',
    STATE,
    ...clustersetWords(clusterset),
  ]
  const command = ['sealane', ...words, ...(force ? ['--force'] : [])]
  const place = { namespace, pod, container: 'broker', command }
  const { status, stderr } = await admin.exec({ ...place, input: framed(file), timeoutMs }, signal)
  if (status !== 0) throw refusedInPod(admin, stderr)
  sayWarnings(stderr, say)
  const ref = { apiVersion: 'v1', kind: 'Pod', namespace, name: pod }
  const before = uidOf(await admin.get(ref, signal))
  say('starting the broker anew with the backup\n')
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
  throw new UserError(`${admin.title}: its brokers are replicas, with their state in etcd: no pod can take a backup`, {
    hint: 'restore etcd itself from a snapshot of its own; nothing was changed',
  })
}

function uidOf(object: { readonly metadata: object } | undefined): unknown {
  return (object?.metadata as { readonly uid?: unknown } | undefined)?.uid
}
