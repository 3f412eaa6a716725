/** `sealane cluster …`, on the broker's host, whether or not the broker runs, or for a broker in a cluster. */
import type { Command } from 'commander'
import type { MemberSummary, WaitingSummary } from '../../protocol/admin/admin.ts'
import { QUOTA_FIELDS, type QuotaField, isReservedId, parseClusterId } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  bytesCell,
  fullRemarks,
  limitCell,
  parseOwnQuota,
  quotaLines,
  recordsCell,
  tokenText,
  unservedText,
  withBroker,
  writeTokenFile,
} from '../broker/broker.ts'
import {
  type CommandContext,
  type KubeTarget,
  LOCAL_BROKER,
  type OutputFormat,
  addKubeOptions,
  clustersetOption,
  durationOption,
  lookTimeoutOption,
  otherContexts,
  outputOption,
  parsed,
  printItems,
  printOne,
  seenOtherwise,
  stateOption,
  subcommand,
  targetToChange,
  targetToSee,
} from '../context/context.ts'

type OwnQuota = { readonly [field in QuotaField]?: number | 'default' }

interface QuotaOptions extends KubeTarget, OwnQuota {
  readonly state: string
  readonly clusterset?: string
  readonly output: OutputFormat
  readonly timeout: number
}

const FLAGS: Readonly<Record<QuotaField, readonly [value: string, help: string]>> = {
  records: ['<count>', 'records that it may publish'],
  bytes: ['<size>', 'their size, such as 32Mi'],
  changes: ['<count>', 'changes a second in the long run'],
  streams: ['<count>', 'streams open at once'],
}

/** `sealane cluster quota`: shows and changes the limits of one member at the broker. */
function addClusterQuota(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Shows the quota of a member, and changes what a flag names; "default": as for all members.'
  const quota = subcommand(cluster, 'quota', text, 'sealane cluster quota paris --records 100000')
  addKubeOptions(quota, LOCAL_BROKER).argument(
    '<id>',
    'as cluster list prints it',
    parsed((id: string) => parseClusterId(id, 'cluster')),
  )
  for (const field of QUOTA_FIELDS) {
    const [value, help] = FLAGS[field]
    quota.option(`--${field} ${value}`, help, parsed(parseOwnQuota(`--${field}`, field)))
  }
  quota
    .addOption(stateOption())
    .addOption(clustersetOption())
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (id: string, options: QuotaOptions, command: Command) => {
      const kube = targetToChange(command, context)
      const named = QUOTA_FIELDS.filter((field) => options[field] !== undefined)
      const change = Object.fromEntries(named.map((field) => [field, options[field]])) as OwnQuota
      const { row, changed } = await withBroker({ ...options, kube }, context, async (broker) => {
        const { changed } = named.length === 0 ? { changed: false } : await broker.changeQuota({ cluster: id, change })
        return { row: (await broker.members()).find((one) => one.id === id), changed }
      })
      if (row === undefined || row.state === 'left' || row.state === 'evicted') {
        throw new UserError(`cluster "${id}" is not a member: sealane cluster list`, { reason: 'MemberUnknown' })
      }
      await printOne(output, options.output, { id, changed, ...row.quota }, quotaLines(row))
      if (named.length > 0) output.remark(changed ? 'changed\n' : 'that was so already: nothing was done\n')
    })
}

/** The maximum number of clashes of one member that are printed below the list. `-o json` has all of them. */
const MAX_CLASHES = 5

/** The same limits as for `sealane token create`. */
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
      const [rows, waiting, unserved] = await withBroker({ ...options, kube }, context, async (broker, reached) => {
        const rows = await broker.members()
        const waiting = options.output === 'table' ? await broker.waiting() : []
        return [rows, waiting, unservedText(options.state, reached, rows)] as const
      })
      const shown = rows.filter(({ state }) => options.all || state === 'in contact' || state === 'silent')
      const notes = shown.flatMap(({ id, notes }) => notes.map((note) => `${id}: ${note}\n`))
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

/** A broker of an earlier release does not report `notCarried`. */
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
      const { evictedAtMs, repeated } = await withBroker({ ...options, kube }, context, (members) =>
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
        withBroker({ ...options, kube }, context, (broker) => broker.rekey({ cluster: id, ttlMs: ttl }))
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

// `sealane cluster waiting|accept|refuse`: lists the members that wait for approval, and records the operator's
// decision.

/** The options that all of these commands have. */
interface CommonOptions extends KubeTarget {
  readonly state: string
  readonly clusterset?: string
  readonly output: OutputFormat
  readonly timeout: number
}

interface AnswerOptions extends CommonOptions {
  readonly fingerprint?: string
}

function addApprovalCommands(cluster: Command, context: CommandContext): void {
  addWaiting(cluster, context)
  addAccept(cluster, context)
  addRefuse(cluster, context)
}

/** A remark below the list of members. Empty if no member waits. */
function waitingRemark(waiting: readonly WaitingSummary[]): string {
  const ids = [...new Set(waiting.filter(({ state }) => state === 'waiting').map(({ id }) => id))]
  const [first] = ids
  if (first === undefined) return ''
  return `waiting for approval: ${ids.join(', ')}; see: sealane cluster waiting\n`
}

function addWaiting(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Lists clusters, and ranges of members, that wait for approval, each with its fingerprint.'
  addKubeOptions(
    subcommand(cluster, 'waiting', text, 'sealane cluster waiting --context hub'),
    seenOtherwise(LOCAL_BROKER),
  )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (options: CommonOptions, command: Command) => {
      const kube = targetToSee(command, context, options.state)
      const rows = await withBroker({ ...options, kube }, context, (broker) => broker.waiting())
      await printItems(output, options.output, rows, [
        { title: 'CLUSTER', cell: (row) => row.id },
        { title: 'WHAT', cell: (row) => row.what },
        { title: 'STATE', cell: (row) => row.state },
        { title: 'FINGERPRINT', cell: (row) => row.fingerprint },
        { title: 'PODS', cell: (row) => row.podCIDRs.join(',') },
        { title: 'SERVICES', cell: (row) => row.serviceCIDRs.join(',') || '-' },
        { title: 'NEEDS', cell: (row) => row.neededCIDRs.join(',') || '-', wide: true },
        { title: 'LABELS', cell: labelsCell, wide: true },
        { title: 'RELEASE', cell: (row) => row.version, wide: true },
        { title: 'FROM', cell: (row) => row.address || '-' },
        { title: 'TOKEN', cell: (row) => row.token || '-' },
        { title: 'SINCE', cell: (row) => new Date(row.sinceMs).toISOString() },
        { title: 'LAST ASKED', cell: (row) => new Date(row.lastAskedMs).toISOString(), wide: true },
        { title: 'UNTIL', cell: (row) => (row.untilMs === undefined ? '-' : new Date(row.untilMs).toISOString()) },
      ])
      if (options.output === 'table' || options.output === 'wide')
        for (const row of rows) output.remark(remarks(row, rows))
    })
}

function labelsCell({ labels }: WaitingSummary): string {
  return (
    Object.entries(labels)
      .map((pair) => pair.join('='))
      .join(',') || '-'
  )
}

/** Facts that an operator must know before accepting. */
function remarks(row: WaitingSummary, all: readonly WaitingSummary[]): string {
  const { id, what, isMember, renumbers, fingerprint } = row
  if (what === 'ranges') {
    const hit = renumbers.length > 0 ? `; if they are accepted, ${renumbers.join(', ')} get global addresses` : ''
    return `${id}: a member, which states other ranges than those that were accepted${hit}\n`
  }
  const others = all.filter((one) => one.id === id && one.what === 'join' && one.fingerprint !== fingerprint)
  const lines = [
    ...(isMember ? [`${id}: a member has this id; who is accepted takes its place\n`] : []),
    ...(renumbers.length > 0 ? [`${id}: if it joins, ${renumbers.join(', ')} get global addresses\n`] : []),
    ...(others.length > 0
      ? [`${id}: several wait under this id: ask the one that you expect for its fingerprint\n`]
      : []),
  ]
  return lines.join('')
}

function addAccept(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Lets a cluster in, or ranges of a member count, that wait for approval; it takes seconds.'
  const command = subcommand(cluster, 'accept', text, 'sealane cluster accept paris --fingerprint SHA256:4fC…')
  withAnswerOptions(command).action(async (id: string, options: AnswerOptions) => {
    const kube = targetToChange(command, context)
    const init = { cluster: id, ...(options.fingerprint === undefined ? {} : { fingerprint: options.fingerprint }) }
    const given = await withBroker({ ...options, kube }, context, (broker) => broker.accept(init))
    const said = given.repeated
      ? `cluster ${id} (${given.fingerprint}) was accepted before: nothing was done\n`
      : `cluster ${id} (${given.fingerprint}) is accepted: ${given.token === '' ? 'its ranges count from now on' : 'it joins when it asks the next time'}\n`
    await printOne(output, options.output, given, said)
  })
}

function addRefuse(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Refuses a cluster, or ranges of a member, that wait for approval.'
  const command = subcommand(cluster, 'refuse', text, 'sealane cluster refuse paris')
  withAnswerOptions(command).action(async (id: string, options: AnswerOptions) => {
    const kube = targetToChange(command, context)
    const init = { cluster: id, ...(options.fingerprint === undefined ? {} : { fingerprint: options.fingerprint }) }
    const given = await withBroker({ ...options, kube }, context, (broker) => broker.refuse(init))
    const said = given.repeated
      ? `cluster ${id} (${given.fingerprint}) was refused before: nothing was done\n`
      : `cluster ${id} (${given.fingerprint}) is refused\n`
    await printOne(output, options.output, given, said)
  })
}

function withAnswerOptions(command: Command): Command {
  return addKubeOptions(command, LOCAL_BROKER)
    .argument(
      '<id>',
      'as cluster waiting prints it',
      parsed((id: string) => parseClusterId(id, 'cluster')),
    )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--fingerprint <fingerprint>', 'only the cluster with this key, as its own "sealane join" prints it')
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
}
