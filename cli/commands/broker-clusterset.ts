/** `sealane broker clusterset create|list|remove`: manages clustersets in addition to the broker's own. */
import type { Command } from 'commander'
import { formatPrefix, parsePrefix } from '../../model/addresses/addresses.ts'
import { parseDnsLabel } from '../../model/model.ts'
import {
  type BrokerOptions,
  type CommandContext,
  LOCAL_BROKER,
  addWholeBrokerOptions,
  parsed,
  printItems,
  printOne,
  seenOtherwise,
  subcommand,
  targetToChange,
  targetToSee,
} from '../context/context.ts'
import { withBroker } from '../broker/broker.ts'

type WholeBrokerOptions = Omit<BrokerOptions, 'clusterset'>

interface CreateOptions extends WholeBrokerOptions {
  readonly globalRange?: string
  readonly clustersetIpRange?: string
}

const name = parsed((text: string) => parseDnsLabel(text, 'clusterset'))
const range = (flag: string): ((text: string) => string) => parsed((text) => formatPrefix(parsePrefix(text, flag)))

export function addBrokerClustersetCommands(broker: Command, context: CommandContext): void {
  const text =
    "Creates, lists and removes clustersets besides the broker's own. Clustersets are isolated from each other."
  const clusterset = subcommand(broker, 'clusterset', text, 'sealane broker clusterset list')
  addCreate(clusterset, context)
  addList(clusterset, context)
  addRemove(clusterset, context)
}

function addCreate(clusterset: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Creates an additional clusterset at this broker, or restores a removed one.'
  const command = subcommand(clusterset, 'create', text, 'sealane broker clusterset create staging')
  addWholeBrokerOptions(command, LOCAL_BROKER)
    .argument('<name>', 'the name of the clusterset, one DNS label', name)
    .option(
      '--global-range <cidr>',
      "range of its global addresses (default: that of the broker's own clusterset)",
      range('--global-range'),
    )
    .option(
      '--clusterset-ip-range <cidr>',
      "range of its clusterset IPs (default: that of the broker's own clusterset)",
      range('--clusterset-ip-range'),
    )
    .action(async (name: string, options: CreateOptions) => {
      const kube = targetToChange(command, context)
      const { globalRange, clustersetIpRange } = options
      const init = {
        name,
        ...(globalRange === undefined ? {} : { globalRange }),
        ...(clustersetIpRange === undefined ? {} : { clustersetIpRange }),
      }
      const made = await withBroker({ ...options, kube }, context, (broker) => broker.createClusterset(init))
      const said = made.repeated
        ? `clusterset ${name} already exists: nothing was changed\n`
        : `clusterset ${name} created\n`
      await printOne(output, options.output, made, said)
      output.remark(
        made.opened
          ? `to let a cluster join: sealane token create --clusterset ${name}\n`
          : 'no broker serves it yet: start the broker, or see its log; then create tokens\n',
      )
    })
}

function addList(clusterset: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Lists the clustersets of a broker.'
  addWholeBrokerOptions(
    subcommand(clusterset, 'list', text, 'sealane broker clusterset list -o json'),
    seenOtherwise(LOCAL_BROKER),
  ).action(async (options: WholeBrokerOptions, command: Command) => {
    const kube = targetToSee(command, context, options.state)
    const rows = await withBroker({ ...options, kube }, context, (broker) => broker.clustersets())
    await printItems(output, options.output, rows, [
      { title: 'CLUSTERSET', cell: (row) => row.name },
      { title: 'STATE', cell: (row) => (row.state === 'own' ? "the broker's own" : row.state) },
      { title: 'MEMBERS', cell: (row) => (row.members === undefined ? '?' : String(row.members)), align: 'right' },
      { title: 'GLOBAL RANGE', cell: (row) => row.globalRange },
      { title: 'CLUSTERSET IPS', cell: (row) => row.clustersetIpRange },
    ])
  })
}

function addRemove(clusterset: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Stops serving a clusterset. The broker keeps its state, and "create" restores it.'
  const command = subcommand(clusterset, 'remove', text, 'sealane broker clusterset remove staging')
  addWholeBrokerOptions(command, LOCAL_BROKER)
    .argument('<name>', 'the name of the clusterset, as shown by "clusterset list"', name)
    .option('--force', 'remove it even if it has members: they keep their last state, and have no broker', false)
    .action(async (name: string, options: WholeBrokerOptions & { readonly force: boolean }) => {
      const kube = targetToChange(command, context)
      const { force } = options
      const { repeated } = await withBroker({ ...options, kube }, context, (broker) =>
        broker.removeClusterset({ name, force }),
      )
      const said = repeated
        ? `clusterset ${name} was already removed: nothing was changed\n`
        : `clusterset ${name} removed\n`
      await printOne(output, options.output, { name, repeated }, said)
      if (!repeated) output.remark(`to restore it with its members: sealane broker clusterset create ${name}\n`)
    })
}
