/** `sealane broker migrate`: moves what a broker knows into another store. */
import type { Command } from 'commander'
import { UserError } from '../../../runtime/user-error.ts'
import { type CommandContext, clustersetOption, stateOption, subcommand } from '../../context.ts'

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

export function addBrokerMigrateCommand(broker: Command, context: CommandContext): void {
  const text = 'Moves what a stopped broker knows into another store. Once more: goes on where it was broken off.'
  subcommand(broker, 'migrate', text, 'sealane broker migrate --from sqlite --to sqlite:/srv/sealane/broker')
    .addOption(stateOption())
    .addOption(clustersetOption())
    .requiredOption('--from <store>', 'sqlite (the directory of --state), sqlite:DIRECTORY or etcd://…')
    .option('--to <store>', 'the same, empty; or one from which the other was moved before')
    .option('--etcd-ca <file>', "certificates that etcd's own is checked against (default: what the system trusts)")
    .option('--etcd-cert <file>', 'client certificate for etcd')
    .option('--etcd-key <file>', 'key of the client certificate')
    .option('--etcd-password-file <file>', 'password of the user in etcd://USER@…')
    .option('--cancel', 'takes a move back: the store of --from is served again', false)
    .option(
      '--force',
      'also where rows contradict each other; with --cancel: also where the other store has gone on',
      false,
    )
    .action((options: MigrateOptions) => (options.cancel ? cancel(options, context) : migrate(options, context)))
}

async function migrate(options: MigrateOptions, { output, signal }: CommandContext): Promise<void> {
  const { from, to, state, clusterset, force } = options
  if (to === undefined) throw new UserError('--to: expected the store into which it shall be moved', { exitCode: 2 })
  const { moveStore } = await import('../../../compose/parts/broker-migrate.ts')
  const moved = await moveStore({ from, to, state, clusterset, force, login: loginOf(options) }, signal)
  const { rows, members, epoch, repeated, others } = moved
  const what = repeated ? 'it was moved before' : `moved: ${rows} rows`
  const which = clusterset === undefined ? '' : `clusterset ${clusterset}: `
  output.answer(`${which}${what}; ${members} members are in ${to}, epoch ${epoch}\n`)
  output.remark(`serve ${to} from now on: a broker refuses to start on ${from}\n`)
  if (others.length > 0)
    output.remark(`each other clusterset is moved by itself: the same with --clusterset ${others.join(', ')}\n`)
}

async function cancel(options: MigrateOptions, { output, signal }: CommandContext): Promise<void> {
  const { from, to, state, clusterset, force } = options
  const { cancelMove } = await import('../../../compose/parts/broker-migrate.ts')
  const init = { from, state, clusterset, force, login: loginOf(options), ...(to === undefined ? {} : { to }) }
  await cancelMove(init, signal)
  output.answer(`the move is taken back: serve ${from} again\n`)
}

function loginOf({ etcdCa, etcdCert, etcdKey, etcdPasswordFile }: MigrateOptions) {
  return {
    ...(etcdCa === undefined ? {} : { caFile: etcdCa }),
    ...(etcdCert === undefined ? {} : { certificateFile: etcdCert }),
    ...(etcdKey === undefined ? {} : { keyFile: etcdKey }),
    ...(etcdPasswordFile === undefined ? {} : { passwordFile: etcdPasswordFile }),
  }
}
