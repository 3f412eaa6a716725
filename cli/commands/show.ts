/** `sealane show clusters|endpoints|connections|services|exports` */
import type { Command } from 'commander'
import type { ClusterApi } from '../../cluster/cluster-api.ts'
import { CONDITION_IMPORTED, findCondition } from '../../model/conditions.ts'
import type { Cluster, Endpoint, ServiceExport, ServiceImport } from '../../model/objects.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { type ConnectionRow, agoText, connectionRows } from '../connection-rows.ts'
import { type CommandContext, outputOption, subcommand } from '../context.ts'
import { exportMessage } from '../export-message.ts'
import { type OutputFormat, printItems } from '../output.ts'
import type { Column } from '../render-table.ts'
import { type TargetOptions, addTargetOptions, withTarget } from '../target.ts'

interface View<T> {
  readonly description: string
  readonly columns: readonly Column<T>[]
  items(cluster: ClusterApi, signal: AbortSignal): Promise<readonly T[]>
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
  description: 'Members of the clusterset, as this site knows them.',
  columns: [
    { title: 'CLUSTER', cell: (row) => row.spec.id },
    { title: 'PODS', cell: (row) => row.spec.podCIDRs.join(',') },
    { title: 'GLOBAL', cell: (row) => row.spec.globalCIDRs.join(',') || '-' },
    { title: 'SERVICES', cell: (row) => row.spec.serviceCIDRs.join(',') || '-' },
    { title: 'LABELS', cell: (row) => pairs(row.spec.labels) },
  ],
  items: (cluster, signal) => sorted(cluster.cache('Cluster'), signal),
}

const endpoints: View<Endpoint> = {
  description: 'Gateways and where they can be called.',
  columns: [
    { title: 'CLUSTER', cell: (row) => row.spec.cluster },
    { title: 'NODE', cell: (row) => row.spec.node },
    { title: 'LANE', cell: (row) => String(row.spec.lane) },
    {
      title: 'CANDIDATES',
      cell: (row) =>
        row.spec.candidates.map((c) => `${c.kind} ${c.address}:${c.port}`).join(', ') || '- (calls the others)',
    },
    { title: 'PUBLIC KEY', cell: (row) => row.spec.publicKey },
  ],
  items: (cluster, signal) => sorted(cluster.cache('Endpoint'), signal),
}

const connections: View<ConnectionRow> = {
  description: 'Tunnels of this site, as their probes find them.',
  columns: [
    { title: 'NODE', cell: (row) => row.node },
    { title: 'LANE', cell: (row) => String(row.lane) },
    { title: 'CLUSTER', cell: (row) => row.cluster },
    { title: 'STATE', cell: (row) => row.state },
    { title: 'ADDRESS', cell: (row) => row.usingAddress ?? '-' },
    { title: 'NAT', cell: (row) => (row.usingNat ? 'yes' : 'no') },
    { title: 'RTT', cell: (row) => (row.rttMs === undefined ? '-' : `${row.rttMs.toFixed(2)} ms`), align: 'right' },
    {
      title: 'LOSS',
      cell: (row) => (row.loss === undefined ? '-' : `${Math.round(row.loss * 100)} %`),
      align: 'right',
    },
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
    { title: 'MESSAGE', cell: (row) => row.message },
  ],
  async items(cluster, signal) {
    return connectionRows(await sorted(cluster.cache('Gateway'), signal), new SystemClock().now())
  },
}

const services: View<ServiceImport> = {
  description: 'Services of the clusterset that this site can call.',
  columns: [
    { title: 'NAMESPACE', cell: (row) => row.metadata.namespace ?? '' },
    { title: 'NAME', cell: (row) => row.metadata.name },
    { title: 'TYPE', cell: (row) => row.spec.type },
    { title: 'IP', cell: (row) => row.spec.ips?.join(',') ?? '-' },
    { title: 'PORTS', cell: (row) => row.spec.ports.map((port) => `${port.port}/${port.protocol}`).join(',') },
    { title: 'CLUSTERS', cell: (row) => row.status?.clusters?.map(({ cluster }) => cluster).join(',') ?? '-' },
  ],
  items: (cluster, signal) => sorted(cluster.cache('ServiceImport'), signal),
}

const exports_: View<ServiceExport> = {
  description: 'Services that this site exports, and what came of it.',
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
  items: (cluster, signal) => sorted(cluster.cache('ServiceExport'), signal),
}

export function addShowCommand(program: Command, context: CommandContext): void {
  const show = subcommand(program, 'show', 'Shows what this site knows.', 'sealane show connections --site site.yaml')
  addView(show, context, 'clusters', clusters)
  addView(show, context, 'endpoints', endpoints)
  addView(show, context, 'connections', connections)
  addView(show, context, 'services', services)
  addView(show, context, 'exports', exports_)
}

function addView<T>(show: Command, { signal, output }: CommandContext, name: string, view: View<T>): void {
  addTargetOptions(subcommand(show, name, view.description, `sealane show ${name} --site site.yaml -o json`))
    .addOption(outputOption())
    .action(async (options: TargetOptions & { output: OutputFormat }) => {
      await withTarget(options, { signal, output, wantsAll: true }, async ({ cluster }) => {
        await printItems(output, options.output, await view.items(cluster, signal), view.columns)
      })
    })
}

function pairs(labels: Readonly<Record<string, string>>): string {
  const text = Object.entries(labels).map(([key, value]) => `${key}=${value}`)
  return text.sort().join(',') || '-'
}
