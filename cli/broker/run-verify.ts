/** The command line of `broker verify`, for the broker on this machine, one in a cluster, or a backup. */
import type { Finding, Verified } from '../../protocol/admin/admin.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type Column, type CommandContext, type OutputFormat, printOne, renderTable } from '../context/context.ts'
import { checkBackup } from './backup-file.ts'
import { type BrokerPlace, withBroker } from './reach-broker.ts'

export interface RunVerifyOptions extends BrokerPlace {
  readonly backup?: string
  readonly output: OutputFormat
}

const COLUMNS: readonly Column<Finding>[] = [
  { title: 'REASON', cell: ({ reason }) => reason },
  { title: 'WHERE', cell: ({ subject }) => subject },
  { title: 'WHAT', cell: ({ text }) => text },
]

/** Throws UserError (StateInconsistent) after it has printed the problems, and the errors of opening the store. */
export async function runVerify(options: RunVerifyOptions, context: CommandContext): Promise<void> {
  const { backup } = options
  if (backup !== undefined) checkBackup(backup)
  const verified =
    backup === undefined
      ? await withBroker(options, context, (broker) => broker.verify())
      : (await import('../../compose/broker/backup.ts')).verifyBackupFile(backup)
  await printOne(context.output, options.output, verified, textOf(verified))
  const { found, findings } = verified
  if (found === 0) return
  const shown = found > findings.length ? `; the first ${findings.length} are listed` : ''
  throw new UserError(`the state has ${found} ${found === 1 ? 'inconsistency' : 'inconsistencies'}${shown}`, {
    reason: 'StateInconsistent',
    hint: 'keep a copy of this state, then restore a backup without inconsistencies; check a backup with sealane broker verify --backup FILE',
  })
}

function textOf(verified: Verified): string {
  const { clusterset, epoch, revision, rows, members, records, findings } = verified
  if (findings.length > 0) return renderTable(COLUMNS, findings)
  const whose = clusterset === undefined ? 'no clusterset yet' : `clusterset ${clusterset}`
  return `no inconsistencies: ${whose}, ${members} members, ${records} records, ${rows} rows; revision ${revision} of epoch ${epoch}\n`
}
