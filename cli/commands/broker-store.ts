/** Commands for the broker's data: backup and restore, verify, migrate and status. */
import type { Command } from 'commander'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { worstOf } from '../../protocol/admin/admin.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type ShownStatus, statusText, withBroker } from '../broker/broker.ts'
import {
  type CommandContext,
  type KubeTarget,
  LOCAL_BROKER,
  type OutputFormat,
  addKubeOptions,
  clustersetOption,
  durationOption,
  lookTimeoutOption,
  outputOption,
  printOne,
  seenOtherwise,
  stateOption,
  subcommand,
  targetFlags,
  targetToChange,
  targetToSee,
  withinTime,
} from '../context/context.ts'

interface CommonOptions extends KubeTarget {
  readonly state: string
  readonly clusterset?: string
  readonly force: boolean
  readonly timeout: number
}

interface BackupOptions extends CommonOptions {
  readonly output?: string
}

interface RestoreOptions extends CommonOptions {
  readonly atNextStart: boolean
}

/** `sealane broker backup` and `restore`: one file with all data of a broker and its certificate authority. */
export function addBrokerBackupCommands(broker: Command, context: CommandContext): void {
  addBackup(broker, context)
  addRestore(broker, context)
}

function addBackup(broker: Command, context: CommandContext): void {
  const text = "Writes the broker's state and certificate authority into one file, also while the broker runs."
  const command = subcommand(broker, 'backup', text, 'sealane broker backup --context hub --output broker.backup')
  addKubeOptions(command, LOCAL_BROKER)
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option(
      '--output <file>',
      'the file to write; keep it secret, because it contains the key of the authority (default: a name with the time)',
    )
    .option('--force', 'overwrite an existing file', false)
    .addOption(durationOption('--timeout', 'how long to wait for the backup', 300_000))
    .action(async (options: BackupOptions) => {
      const { backupToStdout, runBackup } = await import('../broker/run-backup.ts')
      const kube = targetToChange(command, context)
      if (options.output === '-') return backupToStdout({ ...options, kube }, context)
      await runBackup({ ...options, kube }, context)
    })
}

function addRestore(broker: Command, context: CommandContext): void {
  const text = "Replaces the broker's state with a backup. Members keep their certificates."
  const command = subcommand(broker, 'restore', text, 'sealane broker restore broker.backup --context hub')
  addKubeOptions(command, LOCAL_BROKER)
    .argument('<file>', 'a file written by "sealane broker backup"')
    .addOption(stateOption('state directory of a broker on this machine, stopped unless --at-next-start is given'))
    .addOption(clustersetOption())
    .option('--force', 'replace the state even if the broker has members', false)
    .option('--at-next-start', 'stage the backup at a running broker, which restores it at its next start', false)
    .addOption(durationOption('--timeout', 'how long to wait for each step', 300_000))
    .action(async (file: string, options: RestoreOptions) => {
      const { runRestore } = await import('../broker/run-backup.ts')
      const kube = targetToChange(command, context)
      await runRestore(file, { ...options, kube }, context)
    })
}

interface VerifyOptions extends KubeTarget {
  readonly state: string
  readonly clusterset?: string
  readonly backup?: string
  readonly output: OutputFormat
  readonly timeout: number
}

/** `sealane broker verify`: checks the broker's data for inconsistencies. */
export function addBrokerVerifyCommand(broker: Command, context: CommandContext): void {
  const text = "Checks the broker's stored state, and lists inconsistencies. Changes nothing."
  const command = subcommand(broker, 'verify', text, 'sealane broker verify --backup broker.backup')
  addKubeOptions(command, seenOtherwise(LOCAL_BROKER))
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--backup <file>', 'check a file written by "sealane broker backup" instead of a broker')
    .addOption(outputOption())
    .addOption(durationOption('--timeout', 'how long to wait in a cluster', 300_000))
    .action(async (options: VerifyOptions) => {
      const { runVerify } = await import('../broker/run-verify.ts')
      const kube = options.backup === undefined ? targetToSee(command, context, options.state) : undefined
      await runVerify({ ...options, kube }, context)
    })
}

interface StatusOptions extends KubeTarget {
  readonly state: string
  readonly output: OutputFormat
  readonly timeout: number
}

/** `sealane broker status`: shows the health of the broker, its replicas and its store. */
export function addBrokerStatusCommand(broker: Command, context: CommandContext): void {
  const text =
    'Shows the health of the broker, its replicas and its store. Exit code 0: healthy, 1: degraded, 2: down. Changes nothing.'
  const command = subcommand(broker, 'status', text, 'sealane broker status --context hub')
  addKubeOptions(command, seenOtherwise(LOCAL_BROKER))
    .addOption(stateOption())
    .addOption(lookTimeoutOption(60_000))
    .addOption(outputOption())
    .action(async (options: StatusOptions) => {
      const kube = targetToSee(command, context, options.state)
      const status = await (kube === undefined ? here(options, context) : onCluster(kube, options, context))
      await printOne(context.output, options.output, status, statusText(status))
      const { health, problems } = status
      if (health === 'healthy') return
      const [first] = problems.filter((one) => one.health === health)
      throw new UserError(`the broker is ${health}: ${first?.text ?? ''}`, { exitCode: health === 'down' ? 2 : 1 })
    })
}

async function here(options: StatusOptions, context: CommandContext): Promise<ShownStatus> {
  const broker = await withBroker({ ...options, kube: undefined }, context, (one) => one.status())
  const { health, problems } = broker
  return { health, problems, broker }
}

async function onCluster(kube: KubeTarget, { timeout }: StatusOptions, context: CommandContext): Promise<ShownStatus> {
  const { withAdmin } = await import('../context/with-admin.ts')
  const { podStatus } = await import('../broker/pod-status.ts')
  return withinTime(context.signal, timeout, (signal) =>
    withAdmin(kube, new SystemClock(), { ...context, signal }, async ({ admin }) => {
      const status = await podStatus(admin, targetFlags(kube, admin.contextName), signal)
      return { health: worstOf(status.problems), ...status }
    }),
  )
}

interface MigrateOptions {
  readonly state: string
  readonly clusterset?: string
  readonly from: string
  readonly to?: string
  readonly force: boolean
  readonly cancel: boolean
  readonly etcdCa?: string
  readonly etcdCert?: string
  readonly etcdKey?: string
  readonly etcdPasswordFile?: string
}

/** `sealane broker migrate`: moves the broker's data into another store. */
export function addBrokerMigrateCommand(broker: Command, context: CommandContext): void {
  const text =
    'Moves the state of a stopped broker into another store. To continue after an interruption, run it again.'
  subcommand(broker, 'migrate', text, 'sealane broker migrate --from sqlite --to sqlite:/srv/sealane/broker')
    .addOption(stateOption('state directory of the stopped broker'))
    .addOption(clustersetOption())
    .requiredOption('--from <store>', 'sqlite (the directory of --state), sqlite:DIRECTORY or etcd://…')
    .option('--to <store>', 'the new store, in the same form: empty, or one whose state was moved to --from earlier')
    .option('--etcd-ca <file>', "CA certificates that verify etcd's certificate (default: those of the system)")
    .option('--etcd-cert <file>', 'client certificate for etcd')
    .option('--etcd-key <file>', 'key of the client certificate')
    .option('--etcd-password-file <file>', 'password of the user in etcd://USER@…')
    .option('--cancel', 'cancel a move: brokers serve the store of --from again', false)
    .option(
      '--force',
      'move even if the state is inconsistent; with --cancel: cancel even if the other store has newer changes',
      false,
    )
    .action((options: MigrateOptions) => (options.cancel ? cancel(options, context) : migrate(options, context)))
}

async function migrate(options: MigrateOptions, { output, signal }: CommandContext): Promise<void> {
  const { from, to, state, clusterset, force } = options
  if (to === undefined) throw new UserError('--to: expected the store to move the state into', { exitCode: 2 })
  const { moveStore } = await import('../../compose/broker/migrate.ts')
  const moved = await moveStore({ from, to, state, clusterset, force, login: loginOf(options) }, signal)
  const { rows, members, epoch, repeated, others } = moved
  const what = repeated ? 'already moved' : `moved: ${rows} rows`
  const which = clusterset === undefined ? '' : `clusterset ${clusterset}: `
  output.answer(`${which}${what}; ${members} members are in ${to}, epoch ${epoch}\n`)
  output.remark(`from now on, start the broker with ${to}: it refuses to start with ${from}\n`)
  if (others.length > 0)
    output.remark(
      `move each other clusterset separately: run the same command with --clusterset ${others.join(', ')}\n`,
    )
}

async function cancel(options: MigrateOptions, { output, signal }: CommandContext): Promise<void> {
  const { from, to, state, clusterset, force } = options
  const { cancelMove } = await import('../../compose/broker/migrate.ts')
  const init = { from, state, clusterset, force, login: loginOf(options), ...(to === undefined ? {} : { to }) }
  await cancelMove(init, signal)
  output.answer(`move canceled: start the broker with ${from}\n`)
}

function loginOf({ etcdCa, etcdCert, etcdKey, etcdPasswordFile }: MigrateOptions) {
  return {
    ...(etcdCa === undefined ? {} : { caFile: etcdCa }),
    ...(etcdCert === undefined ? {} : { certificateFile: etcdCert }),
    ...(etcdKey === undefined ? {} : { keyFile: etcdKey }),
    ...(etcdPasswordFile === undefined ? {} : { passwordFile: etcdPasswordFile }),
  }
}
