/**
 * `sealane show access` and `sealane access check`: who may call which services of this cluster or site, and why.
 * `sealane access default`: what counts for services without a policy, at the broker.
 */
import type { Command } from 'commander'
import { withBroker } from '../broker/broker.ts'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { type AccessDefault, exposureOf, isOfferedTo } from '../../model/access/access.ts'
import { type Kind, MEMBERSHIP_NAME, type ObjectKinds, type Offer, isDnsLabel } from '../../model/model.ts'
import { ExitWith, UserError } from '../../runtime/runtime.ts'
import {
  type CommandContext,
  type KubeTarget,
  LOCAL_BROKER,
  LOCAL_SITE,
  type OutputFormat,
  type ShowOptions,
  type TargetOptions,
  addKubeOptions,
  addShowOptions,
  addTargetOptions,
  clustersetOption,
  confirm,
  lookTimeoutOption,
  outputOption,
  parsed,
  printItems,
  printOne,
  quoted,
  seenOtherwise,
  stateOption,
  subcommand,
  targetFlags,
  targetToChange,
  targetToSee,
  withTarget,
  withinTime,
} from '../context/context.ts'
import {
  type AccessObjects,
  type Called,
  type Caller,
  type CheckObjects,
  EXPOSED,
  parseCalled,
  parseCaller,
} from '../status/status.ts'
import { bundleOption, unknownError } from './status.ts'

const KINDS = [
  'Membership',
  'Cluster',
  'ServiceExport',
  'ServiceImport',
  'AccessPolicy',
  'ClusterAccessPolicy',
] as const
/** What a port belongs to. */
const PORT_KINDS = ['Service', 'EndpointSlice'] as const
/** The maximum of a table that is not wide. `-o json` has all rows. */
const MOST_ROWS = 200

interface LookOptions extends TargetOptions {
  readonly bundle?: string
  readonly output: OutputFormat
  readonly timeout: number
}

const SHOW_TEXT =
  'Shows to whom each exported service of this cluster or site is offered, which members import it, and by which rule; for a member, what it may call here.'

/** Adds `access` to `sealane show`. */
export function addShowAccess(show: Command, context: CommandContext): void {
  const { output } = context
  const command = subcommand(show, 'access', SHOW_TEXT, 'sealane show access paris --site site.yaml').argument(
    '[service|cluster]',
    'a service such as web or web.shop, or the id of a member (default: all services)',
    parsed(parseSubject),
  )
  addShowOptions(command, { more: [bundleOption()] })
  command.action(async (subject: Subject | undefined, options: ShowOptions & Pick<LookOptions, 'bundle'>) => {
    const { output: format, namespace } = options
    const { accessRows, causeText, importersText, offeredText } = await import('../status/access/plan-access.ts')
    const objects = await look(command, options, context, KINDS)
    const isKnown = (id: string): boolean => objects.clusters.some(({ spec }) => spec.id === id)
    const cluster = subject?.namespace === undefined && isKnown(subject?.name ?? '') ? subject?.name : undefined
    const isIt = (place: string, name: string, offer: Offer): boolean => {
      if (namespace !== undefined && place !== namespace) return false
      if (cluster !== undefined) return cluster === objects.membership.spec.clusterId || isOfferedTo(offer, cluster)
      return subject === undefined || (name === subject.name && (subject.namespace ?? place) === place)
    }
    const rows = accessRows(objects, isIt)
    if (rows.length === 0 && subject !== undefined && cluster === undefined) throw unknownSubject(subject)
    const isTable = format === 'table' || format === 'wide'
    const most = format === 'table' ? undefined : Infinity
    await printItems(output, format, format === 'table' ? rows.slice(0, MOST_ROWS) : rows, [
      { title: 'NAMESPACE', cell: (row) => row.namespace },
      { title: 'NAME', cell: (row) => row.name },
      { title: 'OFFERED TO', cell: (row) => offeredText(row, most) },
      { title: 'IMPORTED BY', cell: (row) => importersText(row, most) },
      { title: 'RULE', cell: (row) => causeText(row.cause, most) },
    ])
    if (!isTable) return
    if (format === 'table' && rows.length > MOST_ROWS) output.remark(`and ${rows.length - MOST_ROWS} more: -o wide\n`)
    output.remark(remarkText(objects))
  })
}

interface Subject {
  readonly name: string
  readonly namespace?: string
}

function parseSubject(text: string): Subject {
  const [name = '', namespace, ...more] = text.split('.')
  if (more.length === 0 && isDnsLabel(name) && (namespace === undefined || isDnsLabel(namespace)))
    return { name, ...(namespace === undefined ? {} : { namespace }) }
  throw new UserError(`${quoted(text)}: expected a service such as web or web.shop, or the id of a member`)
}

function unknownSubject({ name, namespace }: Subject): UserError {
  const isService = namespace !== undefined
  const text = isService
    ? `${name}.${namespace}: not exported by this cluster`
    : `${name}: neither an exported service of this cluster nor the id of a member`
  return new UserError(text, { exitCode: 2, hint: 'see: sealane show access; sealane show clusters' })
}

/** What the rows do not say. */
function remarkText(objects: AccessObjects): string {
  const { membership, imports } = objects
  const { clusterId: self } = membership.spec
  const isOther = (one: { readonly cluster: string }): boolean => one.cluster !== self
  const callable = imports.filter(({ status }) => status?.clusters?.some(isOther) === true).length
  return (
    `this cluster exposes ${EXPOSED[exposureOf(membership)]}\n` +
    `elsewhere it may call the services that it imports (${callable}): sealane show services\n`
  )
}

export function addAccessCommand(program: Command, context: CommandContext): void {
  const text = 'Explains who may call the services of this cluster or site, and sets the default of the clusterset.'
  const access = subcommand(program, 'access', text, 'sealane access check paris/shop web.shop:80')
  const about =
    'Tells whether a call from another cluster is allowed, and by which rule. Run it where the service is. Exit code 0: allowed, 1: refused, 3: unknown.'
  const command = subcommand(access, 'check', about, 'sealane access check paris/shop web.shop:80 --context c1')
    .argument('<from>', 'the caller, as CLUSTER, CLUSTER/NAMESPACE or CLUSTER/NAMESPACE/POD', parsed(parseCaller))
    .argument(
      '<to>',
      'SERVICE.NAMESPACE, SERVICE.NAMESPACE:PORT, or the address of a pod and a port',
      parsed(parseCalled),
    )
  addTargetOptions(command, seenOtherwise(LOCAL_SITE))
    .addOption(bundleOption())
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (from: Caller, to: Called, options: LookOptions) => {
      const objects = await look(command, options, context, [...KINDS, ...PORT_KINDS]).catch(couldNotLook)
      const { checkAccess } = await import('../status/access/plan-access.ts')
      const found = checkAccess(objects, from, to)
      if (found.answer === 'wrong') throw new UserError(found.why, { exitCode: 2, hint: found.hint })
      const lines = [`${found.answer}: ${found.why}`, ...found.notes]
      await printOne(context.output, options.output, found, lines.map((line) => `${line}\n`).join(''))
      if (found.answer === 'refused') throw new ExitWith(1)
    })
  addDefault(access, context)
}

interface DefaultOptions extends KubeTarget {
  readonly state: string
  readonly clusterset?: string
  readonly output: OutputFormat
  readonly timeout: number
  readonly yes: boolean
}

const DEFAULTS = { allow: 'all members', deny: 'no member' } as const satisfies Record<AccessDefault, string>

function addDefault(access: Command, context: CommandContext): void {
  const { output } = context
  const about =
    'Shows or sets to whom the services of a clusterset are offered that have no AccessPolicy. The default of a cluster counts if it is stricter.'
  const command = subcommand(access, 'default', about, 'sealane access default deny')
  addKubeOptions(command, seenOtherwise(LOCAL_BROKER))
    .argument('[access]', 'allow: to all members; deny: to none (default: show it)', parsed(parseDefault))
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--yes', 'do not ask for confirmation', false)
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (wanted: AccessDefault | undefined, options: DefaultOptions) => {
      const { yes, output: format } = options
      if (wanted === undefined) {
        const kube = targetToSee(command, context, options.state)
        const facts = await withBroker({ ...options, kube }, context, (broker) => broker.accessDefault())
        const { accessDefault, isSet } = facts
        const text = `${accessDefault}: ${DEFAULTS[accessDefault]} may call services without an AccessPolicy\n`
        await printOne(output, format, facts, isSet ? text : `${text}nobody has set it\n`)
        return
      }
      const kube = targetToChange(command, context)
      if (wanted === 'deny') {
        const what = 'Stop all calls between members to services without an AccessPolicy'
        await confirm({ what, yes, command: 'sealane access default deny --yes' }, context)
      }
      const done = await withBroker({ ...options, kube }, context, (broker) =>
        broker.setAccessDefault({ accessDefault: wanted }),
      )
      const text = done.changed
        ? `${wanted}: ${DEFAULTS[wanted]} may call services without an AccessPolicy\n`
        : `the default is ${wanted} already: nothing was changed\n`
      await printOne(output, format, { accessDefault: wanted, ...done }, text)
    })
}

function parseDefault(text: string): AccessDefault {
  if (text === 'allow' || text === 'deny') return text
  throw new UserError(`${quoted(text)}: expected allow or deny`)
}

/** Exit code 1 means refused. */
function couldNotLook(error: unknown): never {
  throw unknownError(error)
}

type LookKind = (typeof KINDS)[number] | (typeof PORT_KINDS)[number]

/** Reads the objects of these kinds; of other kinds there are none. Throws UserError before the cluster has joined. */
async function look(
  command: Command,
  { site, timeout, bundle }: LookOptions,
  context: CommandContext,
  kinds: readonly LookKind[],
): Promise<CheckObjects> {
  if (bundle !== undefined) {
    const { bundledObjects } = await import('../bundle/read-bundle.ts')
    const objects: Partial<Awaited<ReturnType<typeof bundledObjects<LookKind>>>> = await bundledObjects(bundle, kinds)
    return checkObjects((kind) => objects[kind] ?? [])
  }
  const kube = targetToSee(command, context, site)
  return withinTime(context.signal, timeout, (signal) =>
    withTarget({ kube, site }, { ...context, signal, wantsAll: true }, async ({ api, admin }) => {
      if (admin !== undefined) {
        const { checkServed } = await import('../context/check-served.ts')
        await checkServed(admin, { kinds, flags: targetFlags(kube ?? {}, admin.contextName) }, signal)
      }
      return readObjects(api, kinds, signal)
    }),
  )
}

async function readObjects(api: ClusterApi, kinds: readonly LookKind[], signal: AbortSignal): Promise<CheckObjects> {
  await Promise.all(kinds.map((kind) => api.cache<Kind>(kind).whenSynced(signal)))
  return checkObjects((kind) => (kinds.includes(kind) ? api.cache(kind).list() : []))
}

function checkObjects(listed: <K extends LookKind>(kind: K) => readonly ObjectKinds[K][]): CheckObjects {
  const membership = listed('Membership').find(({ metadata }) => metadata.name === MEMBERSHIP_NAME)
  if (membership === undefined) {
    throw new UserError('this cluster or site has not joined a clusterset', { hint: 'see: sealane join --help' })
  }
  return {
    membership,
    clusters: listed('Cluster'),
    exports: listed('ServiceExport'),
    imports: listed('ServiceImport'),
    policies: listed('AccessPolicy'),
    clusterPolicies: listed('ClusterAccessPolicy'),
    services: listed('Service'),
    slices: listed('EndpointSlice'),
  }
}
