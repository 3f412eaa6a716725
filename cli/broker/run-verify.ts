/** The command line of `broker verify`, for the broker on this machine, one in a cluster, or a backup. */
import { existsSync } from 'node:fs'
import type { Finding, Verified } from '../../protocol/admin/admin.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type Column, type CommandContext, type OutputFormat, printOne, renderTable } from '../context/context.ts'
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
  if (backup !== undefined && !existsSync(backup))
    throw new UserError(`${backup}: no such file`, { hint: 'name a file that sealane broker backup has written' })
  const verified =
    backup === undefined
      ? await withBroker(options, context, (broker) => broker.verify())
      : (await import('../../compose/broker/backup.ts')).verifyBackupFile(backup)
  await printOne(context.output, options.output, verified, textOf(verified))
  const { found, findings } = verified
  if (found === 0) return
  const shown = found > findings.length ? `, of which ${findings.length} are listed` : ''
  throw new UserError(`${found} ${found === 1 ? 'thing is' : 'things are'} wrong in it${shown}`, {
    reason: 'StateInconsistent',
    hint: 'keep a copy as it is; then restore a backup in which nothing is wrong: sealane broker verify --backup FILE',
  })
}

function textOf(verified: Verified): string {
  const { clusterset, epoch, revision, rows, members, records, findings } = verified
  if (findings.length > 0) return renderTable(COLUMNS, findings)
  const whose = clusterset === undefined ? 'no clusterset yet' : `clusterset ${clusterset}`
  return `nothing is wrong: ${whose}, ${members} members, ${records} records, ${rows} rows; revision ${revision} of epoch ${epoch}\n`
}
