/** `sealane show clusters|endpoints|gateways|connections|relays|services|exports|access|traffic|denied` */
import { type Command, Option } from 'commander'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import {
  CONDITION_IMPORTED,
  type Cluster,
  type Condition,
  type Endpoint,
  type Kind,
  MEMBERSHIP_NAME,
  type ServiceExport,
  type ServiceImport,
  findCondition,
  notLinkedMembers,
  printable,
} from '../../model/model.ts'
import { RELAYS_ANNOTATION, RUNG_TCP_443, remoteLaneOf } from '../../model/lanes/lanes.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import {
  type Column,
  type CommandContext,
  type ShowOptions,
  type Target,
  addShowOptions,
  printItems,
  subcommand,
  targetFlags,
  targetToSee,
  withTarget,
  withinTime,
} from '../context/context.ts'
import {
  type ConnectionRow,
  type GatewayRow,
  type RelayRow,
  agoText,
  betterText,
  candidateText,
  connectionRows,
  gatewayRows,
  noGatewayNote,
  relayRows,
} from '../status/status.ts'
import { addShowAccess } from './access.ts'
import { addShowDenied } from './denied.ts'
import { addShowTraffic } from './traffic.ts'

interface View<T> {
  readonly description: string
  readonly columns: readonly Column<T>[]
  /** The kinds that items() reads. */
  readonly kinds: readonly Kind[]
  /** The namespace of an item. Undefined for views whose items have no namespace. */
  readonly namespaceOf?: (row: T) => string | undefined
  items(api: ClusterApi, signal: AbortSignal): Promise<readonly T[]>
  /** A remark for people in addition to the rows. */
  readonly note?: (rows: readonly T[], api: ClusterApi) => string | undefined
}

async function sorted<T extends { metadata: { name: string; namespace?: string } }>(
  cache: { whenSynced(signal: AbortSignal): Promise<void>; list(): readonly T[] },
  signal: AbortSignal,
): Promise<T[]> {
  await cache.whenSynced(signal)
  const key = ({ metadata }: T): string => `${metadata.namespace ?? ''}/${metadata.name}`
  return [...cache.list()].sort((a, b) => (key(a) < key(b) ? -1 : 1))
}

const clusters: View<Cluster> = {
  description: 'Shows the members of the clusterset that this cluster or site knows.',
  columns: [
    { title: 'CLUSTER', cell: (row) => row.spec.id },
    { title: 'PODS', cell: (row) => row.spec.podCIDRs.join(',') },
    { title: 'GLOBAL', cell: (row) => row.spec.globalCIDRs.join(',') || '-' },
    { title: 'SERVICES', cell: (row) => row.spec.serviceCIDRs.join(',') || '-' },
    { title: 'LABELS', cell: (row) => pairs(row.spec.labels) },
    { title: 'INDEX', cell: (row) => String(row.spec.index), align: 'right', wide: true },
  ],
  kinds: ['Cluster'],
  items: (api, signal) => sorted(api.cache('Cluster'), signal),
}

const endpoints: View<Endpoint> = {
  description: 'Shows the gateways of the clusterset and their addresses.',
  columns: [
    { title: 'CLUSTER', cell: (row) => row.spec.cluster },
    { title: 'NODE', cell: (row) => row.spec.node },
    { title: 'LANE', cell: (row) => String(row.spec.lane) },
    {
      title: 'CANDIDATES',
      cell: (row) =>
        row.spec.candidates.map((c) => `${c.kind} ${c.address}:${c.port}`).join(', ') || '- (outgoing only)',
    },
    { title: 'PUBLIC KEY', cell: (row) => row.spec.publicKey },
    { title: 'NAME', cell: (row) => row.metadata.name, wide: true },
  ],
  kinds: ['Endpoint'],
  items: (api, signal) => sorted(api.cache('Endpoint'), signal),
}

const gateways: View<GatewayRow> = {
  description: 'Shows the gateways of this cluster: the lane of each, and its share of the traffic.',
  columns: [
    { title: 'NODE', cell: (row) => row.node },
    { title: 'LANE', cell: (row) => String(row.lane ?? '-') },
    { title: 'STATE', cell: (row) => row.state },
    { title: 'LINKS', cell: (row) => `${row.linksUp}/${row.links}` },
    { title: 'CLUSTERS', cell: (row) => `${row.clustersUp}/${row.clusters}` },
    {
      title: 'SHARE',
      cell: (row) => (row.share === undefined ? '-' : `${Math.round(row.share * 100)} %`),
      align: 'right',
    },
    { title: 'SINCE', cell: (row) => row.since ?? '-' },
    {
      title: 'HEARD',
      cell: (row) => (row.heardSecondsAgo === undefined ? '-' : agoText(row.heardSecondsAgo)),
      align: 'right',
    },
    { title: 'NAT', cell: (row) => row.nat ?? '-', wide: true },
    { title: 'MESSAGE', cell: (row) => row.message },
  ],
  kinds: ['Gateway', 'Node'],
  async items(api, signal) {
    const nodes = await sorted(api.cache('Node'), signal)
    return gatewayRows(await sorted(api.cache('Gateway'), signal), nodes, new SystemClock().now())
  },
  note: noGatewayNote,
}

/**
 * The size of the largest packet that reaches the other cluster, and that of the largest one from there if it differs.
 */
function sizesText({ mtu, receiveMtu }: ConnectionRow): string {
  const there = mtu === undefined ? '-' : String(mtu)
  return receiveMtu === undefined || receiveMtu === mtu ? there : `${there}/${receiveMtu}`
}

function rungText({ rung, usingRelay, usingNat, via }: ConnectionRow): string {
  if (via !== undefined) return `${usingRelay === undefined ? 'no relay' : `relayed by ${usingRelay}`}, by the topology`
  if (usingRelay !== undefined) return rung === RUNG_TCP_443 ? usingRelay : `relayed by ${usingRelay}`
  return rung === 'direct' && usingNat ? 'direct, NAT' : (rung ?? '-')
}

function candidatesText({ candidates = [] }: ConnectionRow): string {
  const nowMs = new SystemClock().now()
  return candidates.map((one) => candidateText(one, nowMs)).join('; ') || '-'
}

const connections: View<ConnectionRow> = {
  description: 'Shows the tunnels of this cluster or site, and the results of their probes.',
  columns: [
    { title: 'NODE', cell: (row) => row.node },
    { title: 'LANE', cell: (row) => String(row.lane) },
    { title: 'CLUSTER', cell: (row) => row.cluster },
    { title: 'FAR LANE', cell: (row) => String(remoteLaneOf(row)) },
    { title: 'STATE', cell: ({ state, asleep }) => (state === 'up' && asleep === true ? 'up, asleep' : state) },
    { title: 'ADDRESS', cell: (row) => row.usingAddress ?? '-' },
    {
      title: 'RUNG',
      cell: rungText,
    },
    { title: 'RTT', cell: (row) => (row.rttMs === undefined ? '-' : `${row.rttMs.toFixed(2)} ms`), align: 'right' },
    {
      title: 'LOSS',
      cell: (row) => (row.loss === undefined ? '-' : `${Math.round(row.loss * 100)} %`),
      align: 'right',
    },
    { title: 'MTU', cell: (row) => sizesText(row), align: 'right' },
    {
      title: 'HANDSHAKE',
      cell: (row) => (row.handshakeAgeSeconds === undefined ? '-' : `${Math.round(row.handshakeAgeSeconds)} s ago`),
      align: 'right',
    },
    {
      title: 'HEARD',
      cell: (row) => (row.heardSecondsAgo === undefined ? '-' : agoText(row.heardSecondsAgo)),
      align: 'right',
    },
    { title: 'ENDPOINT', cell: (row) => row.endpoint, wide: true },
    { title: 'RECEIVED', cell: (row) => `${row.rxBytes} B`, align: 'right', wide: true },
    { title: 'SENT', cell: (row) => `${row.txBytes} B`, align: 'right', wide: true },
    { title: 'MESSAGE', cell: (row) => row.message },
    { title: 'WHY NOT BETTER', cell: ({ notBetter = [] }) => notBetter.map(betterText).join('; ') || '-', wide: true },
    { title: 'CANDIDATES', cell: candidatesText, wide: true },
  ],
  kinds: ['Gateway', 'Cluster', 'Endpoint', 'Membership'],
  async items(api, signal) {
    for (const kind of ['Cluster', 'Membership'] as const) await api.cache(kind).whenSynced(signal)
    const endpoints = await sorted(api.cache('Endpoint'), signal)
    const cluster = api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clusterId
    const known = { cluster, endpoints }
    return connectionRows(await sorted(api.cache('Gateway'), signal), new SystemClock().now(), known)
  },
  note: (_rows, api) => notLinkedNote(api.cache('Cluster').list()),
}

/** Members to which there is no connection because the topology does not link them with this one. */
function notLinkedNote(clusters: readonly Cluster[]): string | undefined {
  const ids = clusters.flatMap(notLinkedMembers)
  const rest = ids.length - MOST_NOTED
  const named = `${ids.slice(0, MOST_NOTED).map(printable).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
  return ids.length === 0 ? undefined : `NotLinkedByTopology: no connection is meant to ${named}`
}

/** Ids that a note names. */
const MOST_NOTED = 20

const services: View<ServiceImport> = {
  description: 'Shows the services of the clusterset that this cluster or site can call.',
  columns: [
    { title: 'NAMESPACE', cell: (row) => row.metadata.namespace ?? '' },
    { title: 'NAME', cell: (row) => row.metadata.name },
    { title: 'TYPE', cell: (row) => row.spec.type },
    { title: 'IP', cell: (row) => row.spec.ips?.join(',') ?? '-' },
    { title: 'PORTS', cell: (row) => row.spec.ports.map((port) => `${port.port}/${port.protocol}`).join(',') },
    { title: 'CLUSTERS', cell: (row) => row.status?.clusters?.map(({ cluster }) => cluster).join(',') ?? '-' },
  ],
  kinds: ['ServiceImport'],
  namespaceOf: (row) => row.metadata.namespace,
  items: (api, signal) => sorted(api.cache('ServiceImport'), signal),
}

const exports_: View<ServiceExport> = {
  description: 'Shows the services that this cluster or site exports, and the state of each export.',
  columns: [
    { title: 'NAMESPACE', cell: (row) => row.metadata.namespace ?? '' },
    { title: 'NAME', cell: (row) => row.metadata.name },
    ...['Valid', 'Ready', 'Conflict', CONDITION_IMPORTED].map((type) => ({
      title: type.slice(type.indexOf('/') + 1).toUpperCase(),
      cell: (row: ServiceExport) => {
        const condition = findCondition(row.status?.conditions, type)
        return condition === undefined ? '-' : `${condition.status} (${condition.reason})`
      },
    })),
    { title: 'MESSAGE', cell: (row) => exportMessage(row.status?.conditions) },
  ],
  kinds: ['ServiceExport'],
  namespaceOf: (row) => row.metadata.namespace,
  items: (api, signal) => sorted(api.cache('ServiceExport'), signal),
}

const relays: View<RelayRow> = {
  description: 'Shows the relays that this cluster or site knows, and which of its links use them.',
  columns: [
    { title: 'RELAY', cell: (row) => row.relay },
    { title: 'CARRIES', cell: (row) => row.carries },
    { title: 'OFFERED BY', cell: (row) => row.offeredBy },
    { title: 'RTT', cell: (row) => (row.rttMs === undefined ? '-' : `${row.rttMs.toFixed(2)} ms`), align: 'right' },
    {
      title: 'LOAD',
      cell: (row) => (row.load === undefined ? '-' : `${Math.round(row.load * 100)} %`),
      align: 'right',
    },
    { title: 'LINKS', cell: (row) => row.links.map(({ node, cluster }) => `${node} to ${cluster}`).join(', ') || '-' },
    {
      title: 'TROUBLE',
      cell: ({ troubles = [], remarks = [] }) =>
        [
          ...troubles.map(({ node, reason }) => `${node}: ${reason}`),
          ...remarks.map(({ node, note }) => `${node}: ${note}`),
        ].join(', ') || '-',
    },
  ],
  kinds: ['Gateway', 'Endpoint', 'Membership'],
  async items(api, signal) {
    await api.cache('Membership').whenSynced(signal)
    const notice = api.cache('Membership').get(MEMBERSHIP_NAME)?.metadata.annotations?.[RELAYS_ANNOTATION]
    const endpoints = await sorted(api.cache('Endpoint'), signal)
    return relayRows({ gateways: await sorted(api.cache('Gateway'), signal), endpoints, notice })
  },
}

export function addShowCommand(program: Command, context: CommandContext): void {
  const show = subcommand(
    program,
    'show',
    'Shows the state of the clusterset, as this cluster or site knows it.',
    'sealane show connections --site site.yaml',
  )
  addView(show, context, 'clusters', clusters)
  addView(show, context, 'endpoints', endpoints)
  addView(show, context, 'gateways', gateways)
  addView(show, context, 'connections', connections)
  addView(show, context, 'relays', relays)
  addView(show, context, 'services', services)
  addView(show, context, 'exports', exports_)
  addShowAccess(show, context)
  addShowTraffic(show, context)
  addShowDenied(show, context)
}

function addView<T>(show: Command, context: CommandContext, name: string, view: View<T>): void {
  const example = `sealane show ${name} --site site.yaml -o json`
  const command = subcommand(show, name, view.description, example)
  const inNamespaces = view.namespaceOf !== undefined
  const none = 'has no effect: these have no namespace'
  const all = new Option('-A, --all-namespaces', inNamespaces ? 'show all namespaces, as without -n' : none)
  addShowOptions(command, { ...(inNamespaces ? {} : { namespace: none }), more: [all.conflicts('namespace')] })
  command.action(async (options: ShowOptions) => {
    const { site, namespace, timeout, output: format } = options
    const target = { kube: targetToSee(command, context, site), site }
    await withinTime(context.signal, timeout, (signal) =>
      withView(target, { ...context, signal }, view, async (rows, api) => {
        const wanted = rows.filter((row) => isWanted(view, row, namespace))
        await printItems(context.output, format, wanted, view.columns)
        const note = view.note?.(rows, api)
        if (note !== undefined) context.output.remark(`${note}\n`)
      }),
    )
  })
}

/** Items without a namespace are always shown, so that --namespace can be used with every view. */
function isWanted<T>({ namespaceOf }: View<T>, row: T, namespace: string | undefined): boolean {
  return namespace === undefined || namespaceOf === undefined || namespaceOf(row) === namespace
}

/** Objects that cannot be read are reported after the rest is shown. */
function withView<T>(
  target: Target,
  context: CommandContext,
  view: View<T>,
  show: (rows: readonly T[], api: ClusterApi) => Promise<void>,
): Promise<void> {
  return withTarget(target, { ...context, wantsAll: true }, async ({ api, admin }) => {
    if (admin !== undefined) {
      const { checkServed } = await import('../context/check-served.ts')
      const flags = targetFlags(target.kube ?? {}, admin.contextName)
      await checkServed(admin, { kinds: view.kinds, flags }, context.signal)
    }
    await show(await view.items(api, context.signal), api)
  })
}

function pairs(labels: Readonly<Record<string, string>>): string {
  const text = Object.entries(labels).map(([key, value]) => `${key}=${value}`)
  return text.sort().join(',') || '-'
}

// The text about an export for its user, from the messages of its conditions. Pure.

/** Problems come first. The members that import the Service are named in any case. '-' if there is no message. */
export function exportMessage(conditions: readonly Condition[] = []): string {
  const valid = findCondition(conditions, 'Valid')
  // All other conditions follow from an invalid export.
  if (valid !== undefined && valid.status !== 'True') return valid.message
  const ready = findCondition(conditions, 'Ready')
  const conflict = findCondition(conditions, 'Conflict')
  const messages = [
    ready?.status === 'True' ? '' : ready?.message,
    conflict?.status === 'True' ? conflict.message : '',
    findCondition(conditions, CONDITION_IMPORTED)?.message,
  ]
  return messages.filter((message) => message !== undefined && message !== '').join('. ') || '-'
}
