/** `sealane broker migrate`: moves what a broker knows into another store. */
import type { Command } from 'commander'
import { UserError } from '../../../runtime/user-error.ts'
import { type CommandContext, stateOption, subcommand } from '../../context.ts'

interface MigrateOptions {
  readonly state: string
  readonly from: string
  readonly to?: string
  readonly force: boolean
  readonly cancel: boolean
}

export function addBrokerMigrateCommand(broker: Command, context: CommandContext): void {
  const text = 'Moves what a stopped broker knows into another store. Once more: goes on where it was broken off.'
  subcommand(broker, 'migrate', text, 'sealane broker migrate --from sqlite --to sqlite:/srv/sealane/broker')
    .addOption(stateOption())
    .requiredOption('--from <store>', 'sqlite (the directory of --state) or sqlite:DIRECTORY')
    .option('--to <store>', 'the same, empty; or one from which the other was moved before')
    .option('--cancel', 'takes a move back: the store of --from is served again', false)
    .option(
      '--force',
      'also where rows contradict each other; with --cancel: also where the other store has gone on',
      false,
    )
    .action((options: MigrateOptions) => (options.cancel ? cancel(options, context) : migrate(options, context)))
}

async function migrate({ to, ...options }: MigrateOptions, { output, signal }: CommandContext): Promise<void> {
  if (to === undefined) throw new UserError('--to: expected the store into which it shall be moved', { exitCode: 2 })
  const { moveStore } = await import('../../../compose/parts/broker-migrate.ts')
  const { rows, members, epoch, repeated } = await moveStore({ ...options, to }, signal)
  const what = repeated ? 'it was moved before' : `moved: ${rows} rows`
  output.answer(`${what}; ${members} members are in ${to}, epoch ${epoch}\n`)
  output.remark(`serve ${to} from now on: a broker refuses to start on ${options.from}\n`)
}

async function cancel({ to, ...options }: MigrateOptions, { output, signal }: CommandContext): Promise<void> {
  const { cancelMove } = await import('../../../compose/parts/broker-migrate.ts')
  await cancelMove(to === undefined ? options : { ...options, to }, signal)
  output.answer(`the move is taken back: serve ${options.from} again\n`)
}
