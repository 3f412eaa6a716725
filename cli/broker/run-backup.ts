/** The command lines of backup and restore, for the broker on this machine or one in a cluster. */
import { closeSync, createReadStream, openSync, writeSync } from 'node:fs'
import { resolve } from 'node:path'
import type { BackupPart } from '../../protocol/admin/admin.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { type Restored, clustersetState, restoreState, timeOfBackup } from '../../compose/broker/broker.ts'
import { type CommandContext, type KubeTarget, targetFlags } from '../context/context.ts'
import { WARNING, checkBackup, writeBackupFile } from './backup-file.ts'
import { type BrokerPlace, withBroker } from './reach-broker.ts'

/** Throws UserError, StateError, or the error of the cluster. */
export async function runBackup(
  { output: given, force, ...place }: BrokerPlace & { readonly output?: string; readonly force: boolean },
  context: CommandContext,
): Promise<void> {
  const name = place.clusterset === undefined ? '' : `${place.clusterset}-`
  const file = given ?? `sealane-broker-${name}${timeText(new SystemClock().now())}.backup`
  const write = async (target: string): Promise<void> => {
    const part = openSync(target, 'wx', 0o600)
    try {
      await receive(place, resolve(file), context, (bytes) => writeAll(part, bytes))
    } finally {
      closeSync(part)
    }
  }
  await writeBackupFile({ file, force, write, check: timeOfBackup })
  context.output.answer(`${file}\n`)
  context.output.remark('keep this file as secret as a private key: anyone with this file can let any cluster join\n')
}

async function receive(
  place: BrokerPlace,
  knownAs: string,
  context: CommandContext,
  write: (bytes: Uint8Array) => void | Promise<void>,
): Promise<void> {
  const take = async (part: BackupPart): Promise<void> => {
    if ('bytes' in part) await write(part.bytes)
    else warnTo(context)(part.warning)
  }
  await withBroker(place, context, (broker) => broker.backup({ knownAs }, take))
}

function writeAll(file: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length;) at += writeSync(file, bytes, at)
}

/** Prints warnings on stderr, because the command itself has succeeded. */
function warnTo({ output }: CommandContext): (text: string) => void {
  return (text) => output.remark(`${WARNING}${text}\n`)
}

function timeText(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+/, '').replaceAll(':', '')
}

/** Writes the backup to stdout, for the process at the other end of the pipe. */
export async function backupToStdout(place: BrokerPlace, context: CommandContext): Promise<void> {
  const write = (bytes: Uint8Array): Promise<void> =>
    new Promise((done, failed) => {
      process.stdout.write(bytes, (error) => {
        if (error === null || error === undefined) done()
        else failed(error)
      })
    })
  await receive(place, 'a file written to standard output', context, write)
}

export interface RunRestoreOptions extends BrokerPlace {
  readonly force: boolean
  readonly atNextStart: boolean
}

/** Throws UserError, StateError, or the error of the cluster. */
export async function runRestore(file: string, options: RunRestoreOptions, context: CommandContext): Promise<void> {
  const { kube, state, clusterset, force, atNextStart } = options
  checkBackup(file)
  const takenAtMs = timeOfBackup(file)
  const warn = warnTo(context)
  if (kube !== undefined) {
    const flags = await restoreInCluster(file, { ...options, kube }, context)
    context.output.answer(`restored: the broker has its state of ${new Date(takenAtMs).toISOString()}\n`)
    sayWhatIsLost(context, flags)
    return
  }
  if (atNextStart) {
    const parts = createReadStream(file) as AsyncIterable<Buffer>
    const { warnings } = await withBroker(options, context, (broker) => broker.stageRestore({ force }, parts))
    warnings.forEach(warn)
    context.output.answer('backup staged: the broker restores it at its next start\n')
    return
  }
  report(await restoreState(await clustersetState(state, clusterset), file, { force, warn }), context)
}

function report(restored: Restored | undefined, context: CommandContext): void {
  const { output } = context
  if (restored === undefined) return
  const { takenAtMs, members, before } = restored
  output.answer(`restored: the state of ${new Date(takenAtMs).toISOString()}, with ${members.length} members\n`)
  if (before !== undefined) output.remark(`the previous state was saved in ${before}\n`)
  sayWhatIsLost(context, '--state DIRECTORY')
}

function sayWhatIsLost({ output }: CommandContext, flags: string): void {
  output.remark(
    'Tokens in the backup are revoked, and later tokens are unknown. A cluster that joined later comes back by itself, ' +
      'because other members have its records; one that does not come back within minutes must join again ' +
      `(sealane token create ${flags} --cluster-id ID).\n` +
      'The backup does not contain later changes: a cluster that has left or was evicted since is a member again, and an ' +
      `identity that was replaced since is valid again. Check the members, and evict or rekey again: sealane cluster list ${flags}\n`,
  )
}

/** Gives the flags that name the cluster. */
async function restoreInCluster(
  file: string,
  { kube, clusterset, force, timeout: timeoutMs }: RunRestoreOptions & { readonly kube: KubeTarget },
  context: CommandContext,
): Promise<string> {
  const [{ withAdmin }, { restoreIntoPod }] = await Promise.all([
    import('../context/with-admin.ts'),
    import('./pod-backup.ts'),
  ])
  const { signal, output } = context
  const clock = new SystemClock()
  return withAdmin(kube, clock, context, async ({ admin }) => {
    const flags = targetFlags(kube, admin.contextName)
    const texts = { say: (text: string) => output.remark(text), warn: warnTo(context) }
    await restoreIntoPod(admin, { file, force, flags, clusterset, timeoutMs, clock, signal, ...texts })
    return flags
  })
}
