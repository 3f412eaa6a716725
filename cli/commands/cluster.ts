/** `sealane cluster …`, on the broker's host, beside a running broker or not; or on a broker in a cluster. */
import type { Command } from 'commander'
import { isReservedId, parseClusterId } from '../../model/ids.ts'
import {
  type CommandContext,
  clustersetOption,
  durationOption,
  outputOption,
  parsed,
  stateOption,
  subcommand,
} from '../context.ts'
import type { MemberSummary } from '../../compose/parts/broker-store.ts'
import { type CommonOptions, addApprovalCommands, waitingRemark } from './cluster-approval.ts'
import { otherContexts } from '../other-contexts.ts'
import { printItems, printOne } from '../output.ts'
import { LOCAL_BROKER, addKubeOptions, seenOtherwise, targetToChange, targetToSee } from '../target.ts'
import { writeTokenFile } from '../broker/token-file.ts'
import { tokenText } from '../broker/token-text.ts'
import { lookTimeoutOption } from '../within-time.ts'
import { bytesCell, fullRemarks, limitCell, recordsCell } from '../broker/quota-text.ts'
import { unservedText } from '../broker/unserved.ts'
import { withMembers } from '../broker/with-members.ts'
import { addClusterQuota } from './cluster-quota.ts'

/** Of one member, printed below the list; all are in -o json. */
const MAX_CLASHES = 5

/** As of `sealane token create`. */
const TOKEN_TTL = { minMs: 1000, maxMs: 30 * 24 * 3_600_000 }

export function addClusterCommand(program: Command, context: CommandContext): void {
  const cluster = subcommand(
    program,
    'cluster',
    'Lists members of the clusterset, lets clusters in, evicts or limits them, or gives them a new identity.',
    'sealane cluster list',
  )
  addList(cluster, context)
  addEvict(cluster, context)
  addRekey(cluster, context)
  addClusterQuota(cluster, context)
  addApprovalCommands(cluster, context)
}

function addList(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Lists members, as the broker knows them.'
  addKubeOptions(subcommand(cluster, 'list', text, 'sealane cluster list --context hub'), seenOtherwise(LOCAL_BROKER))
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--all', 'also those that left or were evicted', false)
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (options: CommonOptions & { readonly all: boolean }, command: Command) => {
      const kube = targetToSee(command, context, options.state)
      const [rows, waiting] = await withMembers({ ...options, kube }, context, async (members) => [
        await members.members(),
        // A broker of an earlier release knows of none.
        options.output === 'table' ? await members.waiting().catch(() => []) : [],
      ])
      const unserved = await unservedText({ ...options, kube }, context, rows)
      const shown = rows.filter(({ state }) => options.all || state === 'in contact' || state === 'silent')
      const notes = shown.flatMap(({ id, notes }) =>
        ((notes as readonly string[] | undefined) ?? []).map((note) => `${id}: ${note}\n`),
      )
      await printItems(output, options.output, shown, [
        { title: 'CLUSTER', cell: (row) => row.id },
        { title: 'STATE', cell: stateCell },
        { title: 'SINCE', cell: (row) => new Date(row.sinceMs).toISOString() },
        { title: 'RECORDS', cell: recordsCell, align: 'right' },
        { title: 'BYTES', cell: bytesCell, align: 'right', wide: true },
        { title: 'CHANGES/S', cell: limitCell('changes'), align: 'right', wide: true },
        { title: 'STREAMS', cell: limitCell('streams'), align: 'right', wide: true },
        { title: 'PODS', cell: podsCell },
        { title: 'GLOBAL', cell: (row) => row.globalCIDRs.join(',') || '-' },
        { title: 'LAST SEEN', cell: (row) => new Date(row.lastSeenMs).toISOString(), wide: true },
        { title: 'JOINED', cell: (row) => new Date(row.joinedAtMs).toISOString() },
      ])
      if (options.output === 'table') for (const note of notes) output.remark(note)
      output.remark(waitingRemark(waiting))
      if (unserved !== undefined) output.remark(`${unserved}\n`)
      for (const { id } of shown)
        if (isReservedId(id)) output.remark(`${id}: this id is reserved now; the member stays, until it leaves\n`)
      for (const { clashes = [] } of shown) for (const text of clashes.slice(0, MAX_CLASHES)) output.remark(`${text}\n`)
      for (const row of shown) for (const remark of fullRemarks(row)) output.remark(remark)
      for (const { id, misuse } of shown) if (misuse !== undefined) output.remark(misuseRemark(id, misuse))
    })
}

function stateCell({ state, misuse, rekeyedAtMs, forkedAtMs }: MemberSummary): string {
  if (forkedAtMs !== undefined && rekeyedAtMs === undefined) return `${state}, identity forked`
  if (rekeyedAtMs !== undefined) return `${state}, gets a new identity`
  return misuse === undefined ? state : `${state}, identity stolen`
}

function misuseRemark(id: string, { atMs, serial, address }: NonNullable<MemberSummary['misuse']>): string {
  const when = new Date(atMs).toISOString()
  return (
    `${id}: certificate ${serial} was shown from ${address} at ${when}, after it had been replaced: somebody has a copy. ` +
    `A new identity: sealane cluster rekey ${id}\n`
  )
}

/** A broker of an earlier release says nothing of those that are not carried. */
function podsCell({ podCIDRs, notCarried }: MemberSummary): string {
  const left = new Set((notCarried as readonly string[] | undefined) ?? [])
  return podCIDRs.map((cidr) => (left.has(cidr) ? `${cidr} (not carried)` : cidr)).join(',')
}

function addEvict(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Ends the membership of a cluster that cannot leave: everything that it published goes.'
  addKubeOptions(subcommand(cluster, 'evict', text, 'sealane cluster evict paris'), LOCAL_BROKER)
    .argument(
      '<id>',
      'as cluster list prints it',
      parsed((id: string) => parseClusterId(id, 'cluster')),
    )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--force', 'also a cluster that is in contact with the broker', false)
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (id: string, options: CommonOptions & { readonly force: boolean }, command: Command) => {
      const kube = targetToChange(command, context)
      const { evictedAtMs, repeated } = await withMembers({ ...options, kube }, context, (members) =>
        members.evict({ cluster: id, force: options.force }),
      )
      const evicted = new Date(evictedAtMs).toISOString()
      const said = repeated
        ? `cluster ${id} was evicted before, at ${evicted}: nothing was done\n`
        : `cluster ${id} evicted: its records are withdrawn, its certificate is refused\n`
      await printOne(output, options.output, { id, evicted, repeated }, said)
      if (!repeated)
        output.remark(
          'to take it back: make a token here (sealane token create), then run sealane join with it there\n',
        )
    })
}

interface RekeyOptions extends CommonOptions {
  readonly ttl: number
  readonly out?: string
}

function addRekey(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Refuses the identity of a member, and makes the token that gives it a new one: it keeps its addresses.'
  addKubeOptions(subcommand(cluster, 'rekey', text, 'sealane cluster rekey paris'), LOCAL_BROKER)
    .argument(
      '<id>',
      'as cluster list prints it',
      parsed((id: string) => parseClusterId(id, 'cluster')),
    )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .addOption(durationOption('--ttl', 'how long the token can be used', 900_000, TOKEN_TTL))
    .option('--out <file>', 'writes the token into this new file, and prints only the line that joins')
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (id: string, options: RekeyOptions, command: Command) => {
      const kube = targetToChange(command, context)
      const { ttl, out, output: format } = options
      const make = () =>
        withMembers({ ...options, kube }, context, (members) => members.rekey({ cluster: id, ttlMs: ttl }))
      const made = out === undefined ? await make() : await writeTokenFile(out, make)
      const expires = new Date(made.expiresAtMs).toISOString()
      output.remark(`cluster ${id}: its certificates are refused from now on, its records and addresses stay\n`)
      output.remark(`token ${made.id}, for the join that gives it a new identity, until ${expires}\n`)
      const others = kube === undefined || format !== 'table' ? [] : await otherContexts(kube)
      const line = tokenText({ token: made.text, broker: kube, others, cluster: id, file: out })
      if (format === 'table') output.remark(line.remark)
      const value = { id: made.id, cluster: id, ...(out === undefined ? { token: made.text } : { file: out }), expires }
      await printOne(output, format, value, line.answer)
    })
}
