/** The command lines of backup and restore, for the broker on this machine or one in a cluster. */
import { randomBytes } from 'node:crypto'
import { createReadStream, existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import { WARNING, writeBackupFile, writeUnframed } from './backup-file.ts'
import { type Restored, backupState, restoreState, timeOfBackup } from '../../compose/broker/broker.ts'
import { type ClusterAdmin, type CommandContext, type KubeTarget, targetFlags } from '../context/context.ts'
import { type WhichClusterset, stateOf } from './which-clusterset.ts'
import type { PodBackupInit } from './pod-backup.ts'

interface WhichBroker {
  readonly kube: KubeTarget | undefined
  readonly state: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
  readonly timeout: number
}

/** Throws UserError, StateError, or the error of the cluster. */
export async function runBackup(
  { kube, output: given, force, ...which }: WhichBroker & { readonly output?: string; readonly force: boolean },
  context: CommandContext,
): Promise<void> {
  const { clusterset, timeout } = which
  const name = clusterset === undefined ? '' : `${clusterset}-`
  const file = given ?? `sealane-broker-${name}${timeText(new SystemClock().now())}.backup`
  const state = kube === undefined ? await stateOf(which) : which.state
  const write = (target: string): Promise<void> =>
    kube === undefined
      ? backupState(state, target, { knownAs: resolve(file), warn: warnTo(context) })
      : withPod({ ...which, kube, timeout }, context, async (pod) => {
          const { backupFromPod } = await import('./pod-backup.ts')
          await backupFromPod(pod.admin, target, pod.init)
        })
  await writeBackupFile({ file, force, write, check: timeOfBackup })
  context.output.answer(`${file}\n`)
  context.output.remark('keep it as you keep a key: who has it can let any cluster in\n')
}

/** Prints warnings on stderr, because the command itself has succeeded. */
function warnTo({ output }: CommandContext): (text: string) => void {
  return (text) => output.remark(`${WARNING}${text}\n`)
}

function timeText(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+/, '').replaceAll(':', '')
}

/** Writes the backup to stdout, for the process at the other end of the pipe. */
export async function backupToStdout(which: WhichClusterset, context: CommandContext): Promise<void> {
  const state = await stateOf(which)
  await withTemporary(state, async (file) => {
    await backupState(state, file, { knownAs: 'a file that was sent away', warn: warnTo(context) })
    await pipeline(createReadStream(file), process.stdout, { signal: context.signal, end: false })
  })
}

/**
 * The file is in the broker's own directory, which no other user can read and which has room for a file as large as the
 * state.
 */
async function withTemporary(state: string, work: (file: string) => Promise<void>): Promise<void> {
  const file = join(state, `.backup.${randomBytes(6).toString('hex')}`)
  try {
    await work(file)
  } finally {
    await rm(file, { force: true })
  }
}

export interface RunRestoreOptions extends WhichBroker {
  readonly force: boolean
  readonly atNextStart: boolean
  /** `file` is `-`, and stdin has the output of framed(). */
  readonly framed: boolean
}

/** Throws UserError, StateError, or the error of the cluster. */
export async function runRestore(file: string, options: RunRestoreOptions, context: CommandContext): Promise<void> {
  const { kube, force, atNextStart } = options
  const state = kube === undefined ? await stateOf(options) : options.state
  const warn = warnTo(context)
  if (options.framed) {
    return withTemporary(state, async (received) => {
      await writeUnframed(process.stdin, received)
      report(await restoreState(state, received, { force, atNextStart, warn }), context)
    })
  }
  // For a missing file, SQLite would only report that it cannot open the database.
  if (!existsSync(file)) {
    throw new UserError(`${file}: no such file`, { hint: 'name a file that sealane broker backup has written' })
  }
  const takenAtMs = timeOfBackup(file)
  if (kube === undefined) {
    report(await restoreState(state, file, { force, atNextStart, warn }), context)
    return
  }
  await withPod({ ...options, kube }, context, async ({ admin, init }) => {
    const { restoreIntoPod } = await import('./pod-backup.ts')
    await restoreIntoPod(admin, { file, force }, init)
    context.output.answer(`the broker is as it was at ${new Date(takenAtMs).toISOString()}\n`)
    sayWhatIsLost(context, targetFlags(kube, admin.contextName))
  })
}

function report(restored: Restored | undefined, context: CommandContext): void {
  const { output } = context
  if (restored === undefined) {
    output.answer('the broker takes it when it starts anew\n')
    return
  }
  const { takenAtMs, members, before } = restored
  output.answer(`the state is as it was at ${new Date(takenAtMs).toISOString()}, with ${members.length} members\n`)
  if (before !== undefined) output.remark(`what was there before is in ${before}\n`)
  sayWhatIsLost(context, '--state DIRECTORY')
}

function sayWhatIsLost({ output }: CommandContext, flags: string): void {
  output.remark(
    'tokens of that time are revoked, and those made later are not known. Who joined later comes back by itself, as other ' +
      `members hold it; who does not within minutes joins again (sealane token create ${flags} --cluster-id ID).\n` +
      'What no backup can know: who left or was evicted later is a member again, and an identity that was replaced ' +
      `later counts again. Look, and evict or rekey once more: sealane cluster list ${flags}\n`,
  )
}

async function withPod(
  { kube, clusterset, timeout: timeoutMs }: WhichBroker & { readonly kube: KubeTarget },
  context: CommandContext,
  work: (pod: { readonly admin: ClusterAdmin; readonly init: PodBackupInit }) => Promise<void>,
): Promise<void> {
  const { withAdmin } = await import('../context/with-admin.ts')
  const { signal, output } = context
  const clock = new SystemClock()
  await withAdmin(kube, clock, context, ({ admin }) => {
    const flags = targetFlags(kube, admin.contextName)
    return work({ admin, init: { flags, clusterset, timeoutMs, clock, signal, say: (text) => output.remark(text) } })
  })
}
