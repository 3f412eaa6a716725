/** `sealane broker relay add|list|remove`: the relays on port 443 that members get from a broker, while it runs. */
import type { Command } from 'commander'
import { printable } from '../../model/model.ts'
import type { StatedRelay } from '../../protocol/admin/admin.ts'
import {
  type BrokerOptions,
  type CommandContext,
  LOCAL_BROKER,
  addBrokerOptions,
  printItems,
  printOne,
  seenOtherwise,
  subcommand,
  targetToChange,
  targetToSee,
} from '../context/context.ts'
import { withBroker } from '../broker/broker.ts'

export function addBrokerRelayCommands(broker: Command, context: CommandContext): void {
  const text =
    'Adds, lists and removes relays on port 443 for members between which no UDP passes, besides those of "broker serve --relay".'
  const relay = subcommand(broker, 'relay', text, 'sealane broker relay list')
  addAdd(relay, context)
  addList(relay, context)
  addRemove(relay, context)
}

function addAdd(relay: Command, context: CommandContext): void {
  const text = 'Adds a relay. All members learn it within a second.'
  const command = subcommand(relay, 'add', text, 'sealane broker relay add wss://relay.example/')
  addBrokerOptions(command, LOCAL_BROKER)
    .argument('<url>', 'wss://host[:port]/[path][#pin], as "sealane relay serve" prints it')
    .action(async (address: string, options: BrokerOptions) => {
      const kube = targetToChange(command, context)
      const done = await withBroker({ ...options, kube }, context, (broker) => broker.addRelay({ address }))
      const name = printable(done.name)
      const said = done.changed ? `relay ${name} added\n` : `relay ${name} was already added: nothing was changed\n`
      await printOne(context.output, options.output, done, said)
    })
}

function addList(relay: Command, context: CommandContext): void {
  const text = 'Lists the relays on port 443 that members get, in their order, and those that do not count.'
  const command = subcommand(relay, 'list', text, 'sealane broker relay list -o json')
  addBrokerOptions(command, seenOtherwise(LOCAL_BROKER)).action(async (options: BrokerOptions) => {
    const kube = targetToSee(command, context, options.state)
    const rows = await withBroker({ ...options, kube }, context, (broker) => broker.relays())
    await printItems(context.output, options.output, rows, [
      { title: 'RELAY', cell: ({ name }) => printable(name) },
      { title: 'FROM', cell: fromText },
      { title: 'ADDED', cell: ({ addedAtMs }) => (addedAtMs === undefined ? '-' : timeText(addedAtMs)) },
      { title: 'ADDRESS', cell: ({ address }) => printable(address) },
    ])
  })
}

function addRemove(relay: Command, context: CommandContext): void {
  const text = 'Removes a relay that was added. Links that it carries go on by another way, if there is one.'
  const command = subcommand(relay, 'remove', text, 'sealane broker relay remove relay.example')
  addBrokerOptions(command, LOCAL_BROKER)
    .argument('<relay>', 'host[:port] as "relay list" shows it, or the address')
    .action(async (relay: string, options: BrokerOptions) => {
      const kube = targetToChange(command, context)
      const done = await withBroker({ ...options, kube }, context, (broker) => broker.removeRelay({ relay }))
      const name = printable(done.name)
      const said = done.changed ? `relay ${name} removed\n` : `no such relay was added: ${name}: nothing was changed\n`
      await printOne(context.output, options.output, done, said)
      const { flag = '--relay' } = done
      if (done.stays)
        context.output.remark(`members keep it, because a flag of the broker states it too (${printable(flag)})\n`)
    })
}

function fromText(relay: StatedRelay): string {
  const { sameKeyAs = [] } = relay
  const from = sourceText(relay)
  return sameKeyAs.length === 0 ? from : `${from}; same key as ${sameKeyAs.map(printable).join(', ')}`
}

function sourceText({ isFlagged, flag = '--relay', addedAtMs, notStated }: StatedRelay): string {
  if (addedAtMs === undefined) return printable(flag)
  if (isFlagged) return `${printable(flag)}, added`
  return notStated === undefined ? 'added' : `added, but not used: ${printable(notStated)}`
}

function timeText(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+/, '')
}
