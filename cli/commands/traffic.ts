/** `sealane show traffic`: which exporting cluster gets which share of the calls of this cluster or site, and why. */
import { type Command, Option } from 'commander'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { type Kind, MEMBERSHIP_NAME, type ObjectKinds, isDnsLabel } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  type Column,
  type CommandContext,
  type KubeTarget,
  type ShowOptions,
  addShowOptions,
  kubeTarget,
  parsed,
  printItems,
  quoted,
  subcommand,
  targetFlags,
  targetToSee,
  withTarget,
  withinTime,
} from '../context/context.ts'
import type { TrafficObjects, TrafficRow } from '../status/status.ts'
import { bundleOption, lookAgain, screenStart } from './status.ts'

const KINDS = [
  'Membership',
  'Cluster',
  'ServiceImport',
  'EndpointSlice',
  'Gateway',
  'Node',
  'TrafficPolicy',
  'ClusterTrafficPolicy',
  'ClusterAccessPolicy',
] as const
/** The maximum of a table that is not wide. `-o json` has all rows. */
const MOST_ROWS = 200

interface TrafficOptions extends ShowOptions {
  readonly watch: boolean
  readonly bundle?: string
}

/** A service as people name it. Without a namespace: those of this name in all namespaces. */
export interface NamedService {
  readonly namespace?: string
  readonly name: string
}

const TEXT =
  'Shows which cluster gets which share of the calls of this cluster or site to imported services, and why: by policy, tier, weight and ready endpoints.'

/** Adds `traffic` to `sealane show`. */
export function addShowTraffic(show: Command, context: CommandContext): void {
  const command = subcommand(show, 'traffic', TEXT, 'sealane show traffic shop/web --watch').argument(
    '[service]',
    'a service as NAMESPACE/NAME or NAME (default: all)',
    parsed(parseServiceName),
  )
  const text = 'look every two seconds until interrupted, and print again what has changed'
  addShowOptions(command, { more: [new Option('--watch', text).default(false), bundleOption()] })
  command.action(async (service: NamedService | undefined, options: TrafficOptions) => {
    const { namespace = service?.namespace, watch } = options
    if (service?.namespace !== undefined && service.namespace !== namespace) {
      const text = `${service.namespace}/${service.name}: expected namespace ${namespace ?? ''}, as in --namespace`
      throw new UserError(text, { exitCode: 2, hint: 'see: sealane show traffic --help' })
    }
    const isWanted = (place: string, name: string): boolean =>
      (namespace === undefined || place === namespace) && (service === undefined || service.name === name)
    const { invalidPolicies, trafficRows } = await import('../status/traffic/plan-traffic.ts')
    let before: string | undefined
    const look = async (kube: KubeTarget | undefined): Promise<void> => {
      const objects = await readObjects({ ...options, kube }, context)
      const rows = trafficRows(objects, isWanted)
      if (rows.length === 0 && service !== undefined && !watch) throw unknownService({ ...service, namespace })
      const remarks = invalidPolicies(objects)
      const all = JSON.stringify([rows, remarks])
      if (all === before) return
      before = all
      await print(rows, remarks, options, context)
    }
    const target = options.bundle === undefined ? targetToSee(command, context, options.site) : undefined
    await look(target)
    // The name of the selected cluster is printed once.
    const again = target && (kubeTarget(target) ?? {})
    if (watch) await lookAgain(context, () => look(again))
  })
}

/** Parses `NAMESPACE/NAME` or `NAME`. Throws UserError. */
function parseServiceName(text: string): NamedService {
  const parts = text.split('/')
  const [first = '', second, ...more] = parts
  if (more.length === 0 && parts.every(isDnsLabel)) {
    return second === undefined ? { name: first } : { namespace: first, name: second }
  }
  throw new UserError(`service ${quoted(text)}: expected NAMESPACE/NAME or NAME, such as shop/web`)
}

function unknownService({
  namespace,
  name,
}: {
  readonly namespace: string | undefined
  readonly name: string
}): UserError {
  const title = namespace === undefined ? name : `${namespace}/${name}`
  return new UserError(`service ${title}: no cluster exports it to this one`, {
    exitCode: 2,
    hint: 'see: sealane show services',
  })
}

async function print(
  rows: readonly TrafficRow[],
  remarks: readonly string[],
  { output: format, watch }: TrafficOptions,
  context: CommandContext,
): Promise<void> {
  const { output } = context
  // With --watch, programs get one JSON document per line.
  if (watch && format === 'json') {
    output.answer(`${JSON.stringify({ items: rows })}\n`)
    return
  }
  if (watch) output.answer(format === 'yaml' ? '---\n' : screenStart(context))
  await printItems(output, format, format === 'table' ? rows.slice(0, MOST_ROWS) : rows, await columns())
  if (format === 'json' || format === 'yaml') return
  if (format === 'table' && rows.length > MOST_ROWS) output.remark(`and ${rows.length - MOST_ROWS} more: -o wide\n`)
  for (const remark of remarks) output.remark(`${remark}\n`)
}

/** The module is loaded where it is used, because it loads the schemas of policies. */
async function columns(): Promise<readonly Column<TrafficRow>[]> {
  const { policyText, serviceText, shareText } = await import('../status/traffic/plan-traffic.ts')
  return [
    { title: 'SERVICE', cell: serviceText },
    { title: 'CLUSTER', cell: (row) => row.cluster },
    { title: 'TIER', cell: (row) => String(row.tier ?? '-'), align: 'right' },
    { title: 'READY', cell: ({ ready, total }) => `${ready}/${total}`, align: 'right' },
    { title: 'WEIGHT', cell: (row) => String(row.weight ?? '-'), align: 'right' },
    { title: 'SHARE', cell: (row) => shareText(row.share), align: 'right' },
    { title: 'REASON', cell: (row) => row.reason },
    { title: 'POLICY', cell: policyText },
    { title: 'MESSAGE', cell: (row) => row.message },
  ]
}

interface LookInit {
  readonly bundle?: string
  readonly kube: KubeTarget | undefined
  readonly site: string
  readonly timeout: number
}

/** Opens the target for each look: an open site does not see later changes. Throws UserError before the join. */
async function readObjects(
  { kube, site, timeout, bundle }: LookInit,
  context: CommandContext,
): Promise<TrafficObjects> {
  if (bundle !== undefined) {
    const { bundledObjects } = await import('../bundle/read-bundle.ts')
    const objects = await bundledObjects(bundle, KINDS, 'imported')
    return trafficObjects((kind) => objects[kind])
  }
  return withinTime(context.signal, timeout, (signal) =>
    withTarget({ kube, site }, { ...context, signal, wantsAll: true }, async ({ api, admin }) => {
      if (admin !== undefined) {
        const { checkServed } = await import('../context/check-served.ts')
        await checkServed(admin, { kinds: KINDS, flags: targetFlags(kube ?? {}, admin.contextName) }, signal)
      }
      return objectsOf(api, signal)
    }),
  )
}

async function objectsOf(api: ClusterApi, signal: AbortSignal): Promise<TrafficObjects> {
  await Promise.all(KINDS.map((kind: Kind) => api.cache(kind).whenSynced(signal)))
  return trafficObjects((kind) => api.cache(kind).list())
}

function trafficObjects(
  listed: <K extends (typeof KINDS)[number]>(kind: K) => readonly ObjectKinds[K][],
): TrafficObjects {
  const membership = listed('Membership').find(({ metadata }) => metadata.name === MEMBERSHIP_NAME)
  if (membership === undefined) {
    throw new UserError('this cluster or site has not joined a clusterset', { hint: 'see: sealane join --help' })
  }
  return {
    membership,
    clusters: listed('Cluster'),
    imports: listed('ServiceImport'),
    slices: listed('EndpointSlice'),
    gateways: listed('Gateway'),
    nodes: listed('Node'),
    policies: listed('TrafficPolicy'),
    clusterPolicies: listed('ClusterTrafficPolicy'),
    accessPolicies: listed('ClusterAccessPolicy'),
  }
}
