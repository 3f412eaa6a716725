/** Commands for a broker's data: backup and restore, verify, migrate, status. */
import { type Command, Option } from 'commander'
import { type CommandContext, clustersetOption, durationOption, stateOption, subcommand } from '../../context.ts'
import { type KubeTarget, LOCAL_BROKER, addKubeOptions, targetToChange } from '../../target.ts'

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
  readonly framed: boolean
}

/** `sealane broker backup` and `restore`: one file with all that a broker knows, and its certificate authority. */
export function addBrokerBackupCommands(broker: Command, context: CommandContext): void {
  addBackup(broker, context)
  addRestore(broker, context)
}

function addBackup(broker: Command, context: CommandContext): void {
  const text = 'Writes all that the broker knows, and its certificate authority, into one file, while it runs.'
  const command = subcommand(broker, 'backup', text, 'sealane broker backup --context hub --output broker.backup')
  addKubeOptions(command, LOCAL_BROKER)
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--output <file>', 'where to; a secret: it has the key of the authority (default: named by the time)')
    .option('--force', 'also where there is a file of that name', false)
    .addOption(durationOption('--timeout', 'how long it may take', 300_000))
    .action(async (options: BackupOptions) => {
      const { backupToStdout, runBackup } = await import('../../broker/run-backup.ts')
      const kube = targetToChange(command, context)
      if (options.output === '-') return backupToStdout(options, context)
      await runBackup({ ...options, kube }, context)
    })
}

function addRestore(broker: Command, context: CommandContext): void {
  const text = "Puts a backup in the place of the broker's state; members go on with their certificates."
  const command = subcommand(broker, 'restore', text, 'sealane broker restore broker.backup --context hub')
  addKubeOptions(command, LOCAL_BROKER)
    .argument('<file>', 'as broker backup has written it')
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--force', 'also where the broker there has members', false)
    .option('--at-next-start', 'beside a running broker: it takes the backup when it starts anew', false)
    .addOption(new Option('--framed').default(false).hideHelp())
    .addOption(durationOption('--timeout', 'how long each step may take', 300_000))
    .action(async (file: string, options: RestoreOptions) => {
      const { runRestore } = await import('../../broker/run-backup.ts')
      const kube = targetToChange(command, context)
      await runRestore(file, { ...options, kube }, context)
    })
}
