/** `sealane cluster …`, on the broker's host, whether or not the broker runs, or for a broker in a cluster. */
import type { Command } from 'commander'
import type { MemberSummary, WaitingSummary } from '../../protocol/admin/admin.ts'
import type { DrainServiceInit } from '../cluster/drain-service.ts'
import { QUOTA_FIELDS, type QuotaField, isDnsLabel, isReservedId, parseClusterId } from '../../model/model.ts'
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
  type BrokerOptions,
  type CommandContext,
  type KubeTarget,
  LOCAL_BROKER,
  type OutputFormat,
  addBrokerOptions,
  addKubeOptions,
  clustersetOption,
  durationOption,
  lookTimeoutOption,
  otherContexts,
  outputOption,
  parsed,
  printItems,
  printOne,
  quoted,
  seenOtherwise,
  siteOption,
  stateOption,
  subcommand,
  targetToChange,
  targetToSee,
  withTarget,
  withinTime,
} from '../context/context.ts'

type OwnQuota = { readonly [field in QuotaField]?: number | 'default' }

interface QuotaOptions extends KubeTarget, OwnQuota {
  readonly state: string
  readonly clusterset?: string
  readonly output: OutputFormat
  readonly timeout: number
}

const FLAGS: Readonly<Record<QuotaField, readonly [value: string, help: string]>> = {
  records: ['<count>', 'maximum number of records that it can publish'],
  bytes: ['<size>', 'maximum size of its records, such as 32Mi'],
  changes: ['<count>', 'maximum changes per second, averaged over time'],
  streams: ['<count>', 'maximum number of open streams'],
}

/** `sealane cluster quota`: shows and changes the limits of one member at the broker. */
function addClusterQuota(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Shows the quota of a member, or sets limits by flags; "default" resets a limit to that of all members.'
  const quota = subcommand(cluster, 'quota', text, 'sealane cluster quota paris --records 100000')
  addBrokerOptions(quota, LOCAL_BROKER).argument(
    '<id>',
    'the id of the cluster, as shown by "cluster list"',
    parsed((id: string) => parseClusterId(id, 'cluster')),
  )
  for (const field of QUOTA_FIELDS) {
    const [value, help] = FLAGS[field]
    quota.option(`--${field} ${value}`, help, parsed(parseOwnQuota(`--${field}`, field)))
  }
  quota.action(async (id: string, options: QuotaOptions, command: Command) => {
    const kube = targetToChange(command, context)
    const named = QUOTA_FIELDS.filter((field) => options[field] !== undefined)
    const change = Object.fromEntries(named.map((field) => [field, options[field]])) as OwnQuota
    const { row, changed } = await withBroker({ ...options, kube }, context, async (broker) => {
      const { changed } = named.length === 0 ? { changed: false } : await broker.changeQuota({ cluster: id, change })
      return { row: (await broker.members()).find((one) => one.id === id), changed }
    })
    if (row === undefined || row.state === 'left' || row.state === 'evicted') {
      throw new UserError(`cluster "${id}" is not a member; list the members: sealane cluster list`, {
        reason: 'MemberUnknown',
      })
    }
    await printOne(output, options.output, { id, changed, ...row.quota }, quotaLines(row))
    if (named.length > 0)
      output.remark(changed ? 'quota changed\n' : 'the quota already has these limits: nothing was changed\n')
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
    'Lists, accepts, refuses, drains and evicts members of the clusterset, and manages their quotas and identities.',
    'sealane cluster list',
  )
  addList(cluster, context)
  addDrain(cluster, context)
  addEvict(cluster, context)
  addRekey(cluster, context)
  addClusterQuota(cluster, context)
  addApprovalCommands(cluster, context)
}

function addList(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Lists the members of the clusterset.'
  addKubeOptions(subcommand(cluster, 'list', text, 'sealane cluster list --context hub'), seenOtherwise(LOCAL_BROKER))
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--all', 'also list members that left or were evicted', false)
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (options: BrokerOptions & { readonly all: boolean }, command: Command) => {
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
        { title: 'LABELS', cell: labelsCell, wide: true },
        { title: 'LAST SEEN', cell: (row) => new Date(row.lastSeenMs).toISOString(), wide: true },
        { title: 'JOINED', cell: (row) => new Date(row.joinedAtMs).toISOString() },
      ])
      if (options.output === 'table') for (const note of notes) output.remark(note)
      output.remark(waitingRemark(waiting))
      if (unserved !== undefined) output.remark(`${unserved}\n`)
      for (const { id } of shown)
        if (isReservedId(id)) output.remark(`${id}: this id is now reserved; the member keeps it until it leaves\n`)
      for (const { clashes = [] } of shown) for (const text of clashes.slice(0, MAX_CLASHES)) output.remark(`${text}\n`)
      for (const row of shown) for (const remark of fullRemarks(row)) output.remark(remark)
      for (const { id, misuse } of shown) if (misuse !== undefined) output.remark(misuseRemark(id, misuse))
    })
}

function stateCell({ state, misuse, rekeyedAtMs, forkedAtMs, drained, drainedNow }: MemberSummary): string {
  if (drained === true) return `${state}, drained${drainedNow === true ? ' now' : ''}`
  if (forkedAtMs !== undefined && rekeyedAtMs === undefined) return `${state}, identity forked`
  if (rekeyedAtMs !== undefined) return `${state}, gets a new identity`
  return misuse === undefined ? state : `${state}, identity stolen`
}

function misuseRemark(id: string, { atMs, serial, address }: NonNullable<MemberSummary['misuse']>): string {
  const when = new Date(atMs).toISOString()
  return (
    `${id}: certificate ${serial} was used from ${address} at ${when}, after it had been replaced: a copy of its key is in use. ` +
    `Replace the identity: sealane cluster rekey ${id}\n`
  )
}

/** A broker of an earlier release does not report `notCarried`. */
function podsCell({ podCIDRs, notCarried }: MemberSummary): string {
  const left = new Set((notCarried as readonly string[] | undefined) ?? [])
  return podCIDRs.map((cidr) => (left.has(cidr) ? `${cidr} (not carried)` : cidr)).join(',')
}

interface UndrainOptions extends BrokerOptions {
  readonly service?: NamedService
  readonly site: string
}

interface DrainOptions extends UndrainOptions {
  readonly wait: number
  readonly now?: boolean
}

interface NamedService {
  readonly namespace: string
  readonly name: string
}

/** The options that have no effect on one service: they are about the broker. */
const OF_BROKER = ['state', 'clusterset', 'wait']

function addDrain(cluster: Command, context: CommandContext): void {
  const { output, signal } = context
  const named = (verb: 'drain' | 'undrain', text: string): Command =>
    addBrokerOptions(subcommand(cluster, verb, text, `sealane cluster ${verb} paris`), LOCAL_BROKER)
      .argument(
        '[id]',
        'the id of the cluster, as shown by "cluster list"',
        parsed((id: string) => parseClusterId(id, 'cluster')),
      )
      .option(
        '--service <namespace/name>',
        `instead of a whole cluster: ${verb} this service where it is exported; without --context, --kubeconfig and KUBECONFIG: the site of --site`,
        parsed(parseNamedService),
      )
      .addOption(siteOption())
  named(
    'drain',
    'Sends no new connections to a cluster while others are ready. Open connections continue without --now.',
  )
    .option('--now', 'also end open connections through clusterset IPs of which another cluster takes the calls')
    .addOption(durationOption('--wait', 'how long to wait until its pods have no connections with other clusters', 0))
    .action(async (given: string | undefined, { wait, now = false, ...options }: DrainOptions, command: Command) => {
      const subject = drainSubject(given, options.service, command)
      if (typeof subject !== 'string')
        return markService(subject, { drained: true, now }, { options, command, context })
      const id = subject
      const kube = targetToChange(command, context)
      const limits = { ...options, kube, timeout: options.timeout + wait }
      await withBroker(limits, context, async (broker) => {
        const { changed, now: ends } = await broker.drain({ cluster: id, drained: true, ...(now ? { now } : {}) })
        const how = ends === true ? 'drained now' : 'drained'
        const text = changed ? `cluster ${id} is ${how}\n` : `cluster ${id} was already ${how}: nothing was changed\n`
        if (now && ends !== true)
          output.remark('this broker does not know --now: open connections continue; upgrade it first\n')
        const { SystemClock } = await import('../../reconcile/clock.ts')
        const { connectionsOf } = await import('../cluster/await-drained.ts')
        const look = async (): Promise<MemberSummary | undefined> =>
          (await broker.members()).find((one) => one.id === id)
        const { openConnections, sentence } = await connectionsOf(id, look, {
          ...{ timeoutMs: wait, clock: new SystemClock(), signal },
          say: (line) => output.remark(line),
        })
        await printOne(
          output,
          options.output,
          { id, drained: true, ...(ends === true ? { now: true } : {}), changed, openConnections },
          text,
        )
        output.remark(`${sentence}\n`)
      })
    })
  named('undrain', 'Sends new connections to a drained cluster again.').action(
    async (given: string | undefined, options: UndrainOptions, command: Command) => {
      const id = drainSubject(given, options.service, command)
      if (typeof id !== 'string') return markService(id, { drained: false, now: false }, { options, command, context })
      const kube = targetToChange(command, context)
      const { changed } = await withBroker({ ...options, kube }, context, (broker) =>
        broker.drain({ cluster: id, drained: false }),
      )
      const text = changed ? `cluster ${id} gets new connections again\n` : `cluster ${id} is not drained\n`
      await printOne(output, options.output, { id, drained: false, changed }, text)
    },
  )
}

/** The cluster or the service that the command is about. Throws UserError for both, for none, and for other options. */
function drainSubject(
  id: string | undefined,
  service: NamedService | undefined,
  command: Command,
): string | NamedService {
  const usage = (text: string): UserError =>
    new UserError(text, { exitCode: 2, hint: `see: sealane cluster ${command.name()} --help` })
  const isGiven = (name: string): boolean => command.getOptionValueSource(name) === 'cli'
  if (service === undefined) {
    if (id === undefined) throw usage('expected the id of a cluster, or --service NAMESPACE/NAME')
    if (isGiven('site')) throw usage('--site: only with --service; a whole cluster is drained at the broker')
    return id
  }
  const title = `--service ${service.namespace}/${service.name}`
  if (id !== undefined) throw usage(`cluster ${id} and ${title}: expected one of them`)
  const other = OF_BROKER.find(isGiven)
  if (other !== undefined) throw usage(`--${other}: not with ${title}, which is drained where it is exported`)
  return service
}

/** Parses `NAMESPACE/NAME`. Throws UserError. */
function parseNamedService(text: string): NamedService {
  const [namespace = '', name = '', ...more] = text.split('/')
  if (more.length === 0 && isDnsLabel(namespace) && isDnsLabel(name)) return { namespace, name }
  throw new UserError(`--service ${quoted(text)}: expected NAMESPACE/NAME, such as shop/web`)
}

interface MarkInit {
  readonly options: UndrainOptions
  readonly command: Command
  readonly context: CommandContext
}

async function markService(
  { namespace, name }: NamedService,
  { drained, now }: Pick<DrainServiceInit, 'drained' | 'now'>,
  { options, command, context }: MarkInit,
): Promise<void> {
  const { output } = context
  const { drainService } = await import('../cluster/drain-service.ts')
  const { siteAdmin } = await import('../site/site-admin.ts')
  const target = { kube: targetToChange(command, context), site: options.site }
  const changed = await withinTime(context.signal, options.timeout, (signal) =>
    withTarget(target, { ...context, signal }, (site) =>
      drainService(site.admin ?? siteAdmin(site), { namespace, name, drained, now, signal }),
    ),
  )
  const service = `${namespace}/${name}`
  const how = now ? 'drained now' : 'drained'
  const texts = drained
    ? { changed: `is ${how}`, same: `was already ${how}: nothing was changed` }
    : { changed: 'gets new connections again', same: 'is not drained' }
  const text = `service ${service} ${changed ? texts.changed : texts.same}\n`
  await printOne(output, options.output, { service, drained, ...(now ? { now } : {}), changed }, text)
  if (drained && changed)
    output.remark(
      `open connections ${now ? 'are ended' : 'continue'}; in an importing cluster: sealane show traffic ${service}\n`,
    )
}

function addEvict(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Ends the membership of a cluster that cannot leave by itself, and withdraws its records.'
  addKubeOptions(subcommand(cluster, 'evict', text, 'sealane cluster evict paris'), LOCAL_BROKER)
    .argument(
      '<id>',
      'the id of the cluster, as shown by "cluster list"',
      parsed((id: string) => parseClusterId(id, 'cluster')),
    )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--force', 'evict the cluster even if it is in contact with the broker', false)
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (id: string, options: BrokerOptions & { readonly force: boolean }, command: Command) => {
      const kube = targetToChange(command, context)
      const { evictedAtMs, repeated } = await withBroker({ ...options, kube }, context, (members) =>
        members.evict({ cluster: id, force: options.force }),
      )
      const evicted = new Date(evictedAtMs).toISOString()
      const said = repeated
        ? `cluster ${id} was already evicted at ${evicted}: nothing was changed\n`
        : `cluster ${id} evicted: its records are withdrawn and its certificate is revoked\n`
      await printOne(output, options.output, { id, evicted, repeated }, said)
      if (!repeated)
        output.remark(
          'to let it join again: create a token here (sealane token create), and use it there with sealane join\n',
        )
    })
}

interface RekeyOptions extends BrokerOptions {
  readonly ttl: number
  readonly out?: string
}

function addRekey(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text =
    'Revokes the identity of a member, and creates a token to join with a new one. The member keeps its addresses.'
  addKubeOptions(subcommand(cluster, 'rekey', text, 'sealane cluster rekey paris'), LOCAL_BROKER)
    .argument(
      '<id>',
      'the id of the cluster, as shown by "cluster list"',
      parsed((id: string) => parseClusterId(id, 'cluster')),
    )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .addOption(durationOption('--ttl', 'how long the token is valid', 900_000, TOKEN_TTL))
    .option('--out <file>', 'write the token into this new file, and print only the join command')
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (id: string, options: RekeyOptions, command: Command) => {
      const kube = targetToChange(command, context)
      const { ttl, out, output: format } = options
      const make = () =>
        withBroker({ ...options, kube }, context, (broker) => broker.rekey({ cluster: id, ttlMs: ttl }))
      const made = out === undefined ? await make() : await writeTokenFile(out, make)
      const expires = new Date(made.expiresAtMs).toISOString()
      output.remark(`cluster ${id}: its certificates are revoked; it keeps its records and addresses\n`)
      output.remark(`token ${made.id}, for the join with a new identity, until ${expires}\n`)
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
interface AnswerOptions extends BrokerOptions {
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
  const text = 'Lists clusters, and new ranges or labels of members, that wait for approval, with their fingerprints.'
  addBrokerOptions(
    subcommand(cluster, 'waiting', text, 'sealane cluster waiting --context hub'),
    seenOtherwise(LOCAL_BROKER),
  ).action(async (options: BrokerOptions, command: Command) => {
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

function labelsCell({ labels = {} }: Pick<MemberSummary, 'labels'>): string {
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
    const hit = renumbers.length > 0 ? `; if you accept them, ${renumbers.join(', ')} will use global addresses` : ''
    const labels = labelsCell(row)
    const having = labels === '-' ? '' : `, with the labels ${labels}`
    return `${id}: this member reports ranges or labels that differ from the accepted ones${having}${hit}\n`
  }
  const others = all.filter((one) => one.id === id && one.what === 'join' && one.fingerprint !== fingerprint)
  const lines = [
    ...(isMember ? [`${id}: a member already has this id; a cluster that you accept replaces it\n`] : []),
    ...(renumbers.length > 0 ? [`${id}: if it joins, ${renumbers.join(', ')} will use global addresses\n`] : []),
    ...(others.length > 0
      ? [
          `${id}: several clusters with this id wait: compare the fingerprint that "sealane join" printed on the cluster that you expect\n`,
        ]
      : []),
  ]
  return lines.join('')
}

function addAccept(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Accepts a cluster, or new ranges or labels of a member, that wait. This takes effect within seconds.'
  const command = subcommand(cluster, 'accept', text, 'sealane cluster accept paris --fingerprint SHA256:4fC…')
  withAnswerOptions(command).action(async (id: string, options: AnswerOptions) => {
    const kube = targetToChange(command, context)
    const init = { cluster: id, ...(options.fingerprint === undefined ? {} : { fingerprint: options.fingerprint }) }
    const given = await withBroker({ ...options, kube }, context, (broker) => broker.accept(init))
    const said = given.repeated
      ? `cluster ${id} (${given.fingerprint}) was already accepted: nothing was changed\n`
      : `cluster ${id} (${given.fingerprint}) accepted: ${given.token === '' ? 'what it has stated is now in effect' : 'it joins with its next request'}\n`
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
      ? `cluster ${id} (${given.fingerprint}) was already refused: nothing was changed\n`
      : `cluster ${id} (${given.fingerprint}) refused\n`
    await printOne(output, options.output, given, said)
  })
}

function withAnswerOptions(command: Command): Command {
  return addKubeOptions(command, LOCAL_BROKER)
    .argument(
      '<id>',
      'the id of the cluster, as shown by "cluster waiting"',
      parsed((id: string) => parseClusterId(id, 'cluster')),
    )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option(
      '--fingerprint <fingerprint>',
      'only the cluster with this key fingerprint, as "sealane join" printed it there',
    )
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
}
