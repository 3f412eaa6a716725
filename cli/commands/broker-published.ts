/** `sealane broker gateways|services`: what the members of a clusterset publish, as their broker knows it. */
import type { Command } from 'commander'
import type { Published, PublishedService } from '../../protocol/admin/admin.ts'
import { unservedText, withBroker } from '../broker/broker.ts'
import {
  type BrokerOptions,
  type Column,
  type CommandContext,
  LOCAL_BROKER,
  type OutputFormat,
  addBrokerOptions,
  printItems,
  seenOtherwise,
  subcommand,
  targetToSee,
} from '../context/context.ts'

const GATEWAYS_TEXT = 'Lists the gateways that members publish, with the addresses where others may reach them.'
const SERVICES_TEXT = 'Lists the services that members export, with who exports and who imports each.'

export const GATEWAY_COLUMNS: readonly Column<Published['gateways'][number]>[] = [
  { title: 'CLUSTER', cell: ({ cluster }) => cluster },
  { title: 'NODE', cell: ({ node }) => node },
  { title: 'LANE', cell: ({ lane }) => String(lane), align: 'right' },
  { title: 'ADDRESSES', cell: ({ addresses }) => addresses.join(',') || '-' },
]

export const SERVICE_COLUMNS: readonly Column<PublishedService>[] = [
  { title: 'NAMESPACE', cell: ({ namespace }) => namespace },
  { title: 'NAME', cell: ({ name }) => name },
  { title: 'TYPE', cell: ({ type }) => type, wide: true },
  { title: 'IP', cell: ({ ips }) => ips.join(',') || '-' },
  { title: 'EXPORTED BY', cell: exportersCell },
  { title: 'IMPORTED BY', cell: ({ importers, importersCount }) => idsText(importers, importersCount) },
]

export function addBrokerPublishedCommands(broker: Command, context: CommandContext): void {
  add(broker, context, 'gateways', GATEWAYS_TEXT, async ({ gateways, gatewaysCount }, format) => {
    await printItems(context.output, format, gateways, GATEWAY_COLUMNS)
    return gatewaysCount - gateways.length
  })
  add(broker, context, 'services', SERVICES_TEXT, async ({ services, servicesCount }, format) => {
    await printItems(context.output, format, services, SERVICE_COLUMNS)
    return servicesCount - services.length
  })
}

/** `print` gives the number of rows that the broker has left out. */
function add(
  broker: Command,
  context: CommandContext,
  name: 'gateways' | 'services',
  text: string,
  print: (found: Published, format: OutputFormat) => Promise<number>,
): void {
  const { output } = context
  const command = subcommand(broker, name, text, `sealane broker ${name} --context hub`)
  addBrokerOptions(command, seenOtherwise(LOCAL_BROKER)).action(async (options: BrokerOptions) => {
    const kube = targetToSee(command, context, options.state)
    const [found, unserved] = await withBroker({ ...options, kube }, context, async (admin, reached) => {
      const found = await admin.published()
      return [
        found,
        reached.served === false ? unservedText(options.state, reached, await admin.members()) : undefined,
      ] as const
    })
    const left = await print(found, options.output)
    if (left > 0) output.remark(`and ${left} more\n`)
    if (unserved !== undefined) output.remark(`${unserved}\n`)
  })
}

function exportersCell({ exporters, exportersCount, drainedAt }: PublishedService): string {
  const drained = new Set(drainedAt)
  return idsText(
    exporters.map((id) => (drained.has(id) ? `${id} (drained)` : id)),
    exportersCount,
  )
}

function idsText(ids: readonly string[], count: number): string {
  if (ids.length === 0) return '-'
  return `${ids.join(',')}${count > ids.length ? ` and ${count - ids.length} more` : ''}`
}
