/** `sealane topology show|plan|set`: which clusters of a clusterset link with which, at its broker. */
import { readFile, stat } from 'node:fs/promises'
import type { Command } from 'commander'
import { type Topology, printable } from '../../model/model.ts'
import type { CrowdedRelays, TopologyPlan } from '../../protocol/admin/admin.ts'
import { UserError, messageOf } from '../../runtime/runtime.ts'
import {
  type BrokerOptions,
  type CommandContext,
  LOCAL_BROKER,
  addBrokerOptions,
  confirm,
  printOne,
  quoted,
  seenOtherwise,
  subcommand,
  targetToChange,
  targetToSee,
} from '../context/context.ts'
import { withBroker } from '../broker/broker.ts'

interface SetOptions extends BrokerOptions {
  readonly yes: boolean
}

/** A file with the most names has a quarter of it. */
const MAX_FILE = 1 << 20
/** Rows of each list that people are shown; -o json has more. */
const MOST_ROWS = 20
const ARGUMENT = 'a YAML or JSON file with the topology; - for standard input; full: all clusters link'

export function addTopologyCommand(program: Command, context: CommandContext): void {
  const about = 'Shows or sets which clusters of a clusterset link with which.'
  const topology = subcommand(program, 'topology', about, 'sealane topology show')
  addShow(topology, context)
  addPlan(topology, context)
  addSet(topology, context)
}

function addShow(topology: Command, context: CommandContext): void {
  const command = subcommand(topology, 'show', 'Shows the topology that counts.', 'sealane topology show')
  addBrokerOptions(command, seenOtherwise(LOCAL_BROKER)).action(async (options: BrokerOptions) => {
    const kube = targetToSee(command, context, options.state)
    const facts = await withBroker({ ...options, kube }, context, (broker) => broker.topology())
    const { number, setAtMs, object, ignoredBy } = facts
    const by = object === undefined ? '' : ` by ${object}`
    const since = setAtMs === undefined ? '' : `, set at ${new Date(setAtMs).toISOString()}${by}`
    const head = number === 0 ? '# it was never set: all clusters link\n' : `# change ${number}${since}\n`
    const open = ignoredBy === undefined ? '' : `# TopologyNotSupported: ignored by replicas ${some(ignoredBy)}\n`
    // The YAML package is large, and most commands do not need it.
    const { formatYaml } = await import('../../kubeapi/yaml.ts')
    await printOne(context.output, options.output, facts, `${head}${open}${formatYaml(facts.topology)}`)
  })
}

function addPlan(topology: Command, context: CommandContext): void {
  const about = 'Says which links and importers a topology would change. Changes nothing.'
  const command = subcommand(topology, 'plan', about, 'sealane topology plan topology.yaml')
  addBrokerOptions(command, seenOtherwise(LOCAL_BROKER))
    .argument('<file>', ARGUMENT)
    .action(async (file: string, options: BrokerOptions) => {
      const kube = targetToSee(command, context, options.state)
      const wanted = await readTopologyFile(file)
      const plan = await withBroker({ ...options, kube }, context, (broker) =>
        broker.planTopology({ topology: wanted }),
      )
      await printOne(context.output, options.output, plan, planText(plan))
    })
}

function addSet(topology: Command, context: CommandContext): void {
  const { output } = context
  const about = 'Sets the topology. Asks for confirmation if links would vanish.'
  const command = subcommand(topology, 'set', about, 'sealane topology set topology.yaml')
  addBrokerOptions(command, LOCAL_BROKER)
    .argument('<file>', ARGUMENT)
    .option('--yes', 'do not ask for confirmation', false)
    .action(async (file: string, options: SetOptions) => {
      const kube = targetToChange(command, context)
      const place = { ...options, kube }
      const wanted = await readTopologyFile(file)
      // Services are of use to somebody who reads them.
      const linksOnly = options.yes
      const plan = await withBroker(place, context, (broker) => broker.planTopology({ topology: wanted, linksOnly }))
      const { basedOn, links } = plan
      if (links.lost > 0) {
        if (!options.yes) output.remark(planText(plan))
        const what = `End ${count(links.lost, 'link')} between clusters`
        await confirm({ what, yes: options.yes, command: `sealane topology set ${file} --yes` }, context)
      }
      const done = await withBroker(place, context, (broker) => broker.setTopology({ topology: wanted, basedOn }))
      // Hubs may begin to relay, or join, later: what is missing is said and not refused.
      if (done.changed && missingText(plan) !== '') output.remark(missingText(plan))
      const text = done.changed
        ? `${modeText(plan)}: ${count(links.lost, 'link')} lost, ${links.gained} gained, ${links.after} in all\n`
        : `the topology is that already: nothing was changed\n`
      await printOne(output, options.output, { ...done, links }, text)
    })
}

/** Gives what the file states, which the broker checks. Throws UserError. */
async function readTopologyFile(file: string): Promise<unknown> {
  if (file === 'full') return { mode: 'full' } satisfies Topology
  const named = file === '-' ? 'standard input' : file
  let text: string
  try {
    text = file === '-' ? await readStdin(named) : await readBounded(file)
  } catch (error) {
    throw error instanceof UserError ? error : new UserError(`${named}: ${messageOf(error)}`, { cause: error })
  }
  if (text.length > MAX_FILE) throw tooLarge(named)
  const { parseYaml } = await import('../../kubeapi/yaml.ts')
  let stated: unknown
  try {
    stated = parseYaml(text)
  } catch (error) {
    throw new UserError(`${named}: expected YAML or JSON: ${messageOf(error)}`, { cause: error })
  }
  // Aliases may repeat much of a short text.
  if (lengthOf(stated, named) > MAX_FILE) throw tooLarge(named)
  return stated
}

function lengthOf(stated: unknown, named: string): number {
  try {
    return JSON.stringify(stated).length
  } catch (error) {
    throw new UserError(`${named}: expected no alias that stands for what it is part of`, { cause: error })
  }
}

async function readStdin(named: string): Promise<string> {
  const parts: Buffer[] = []
  let bytes = 0
  for await (const part of process.stdin as AsyncIterable<Buffer>) {
    parts.push(part)
    bytes += part.length
    if (bytes > MAX_FILE) throw tooLarge(named)
  }
  return Buffer.concat(parts).toString()
}

/** Another file, such as a device, might never end. */
async function readBounded(file: string): Promise<string> {
  const found = await stat(file)
  if (!found.isFile()) throw new UserError(`${quoted(file)}: expected a file`)
  if (found.size > MAX_FILE) throw tooLarge(file)
  return readFile(file, 'utf8')
}

function tooLarge(named: string): UserError {
  return new UserError(`${named}: expected at most ${MAX_FILE} bytes`)
}

/** The plan for people. Pure. */
export function planText(plan: TopologyPlan): string {
  const { links, members, changes, services, servicesChanged, alone, unknown } = plan
  const pairs = (members * (members - 1)) / 2
  const of = (change: TopologyPlan['changes'][number]['change']): string[] =>
    changes.filter((one) => one.change === change).map(({ clusters }) => pairText(clusters))
  const losing = services.flatMap(({ exporter, namespace, name, loses, losesCount }) =>
    losesCount === 0 ? [] : [`${printable(`${namespace}/${name} of ${exporter}`)}: ${some(loses, losesCount)}`],
  )
  const gaining = services.flatMap(({ exporter, namespace, name, gains, gainsCount }) =>
    gainsCount === 0 ? [] : [`${printable(`${namespace}/${name} of ${exporter}`)}: ${some(gains, gainsCount)}`],
  )
  return [
    `${modeText(plan)}: ${links.after} of ${count(pairs, 'pair')} of clusters would link\n`,
    section(`links lost: ${links.lost}`, of('lost'), links.lost),
    section(`links gained: ${links.gained}`, of('gained'), links.gained),
    transitText(plan, [...of('transit'), ...of('direct').map((pair) => `${pair}: without hubs`)]),
    section('services that lose importers', losing, losing.length),
    section('services that gain importers', gaining, gaining.length),
    servicesChanged > services.length ? `and ${servicesChanged - services.length} more services\n` : '',
    alone.length === 0 || links.after === pairs ? '' : `without any link: ${some(alone)}\n`,
    unknown.length === 0
      ? ''
      : `named, and no member yet: ${some(unknown)}; reserve such an id: sealane token create --cluster-id\n`,
  ].join('')
}

/** What goes through hubs, and what is missing for it. */
function transitText({ transit }: TopologyPlan, moved: readonly string[]): string {
  if (transit === undefined) return ''
  const { links } = transit
  return [
    links === 0 ? '' : `${count(links, 'link')} through hubs\n`,
    section(`links that move: ${transit.moved}, each is interrupted for a second or two`, moved, transit.moved),
    missingText({ transit }),
  ].join('')
}

function missingText({ transit }: Pick<TopologyPlan, 'transit'>): string {
  if (transit === undefined) return ''
  const { withoutRelay, unreachable, unreachableCount, crowded = [] } = transit
  const mend = 'sealane join --relay, or relay: true in site.yaml'
  return [
    withoutRelay.length === 0 ? '' : `hubs of which no gateway relays: ${some(withoutRelay)}; ${mend}\n`,
    section(
      `links that stay down, because no hub is a member and links with both: ${unreachableCount}`,
      unreachable.map(pairText),
      unreachableCount,
    ),
    section(
      `hubs whose relays have too little room, so some links stay down: ${crowded.length}`,
      crowded.map(crowdedText),
      crowded.length,
    ),
  ].join('')
}

function crowdedText({ via, links, room, member, linksOfMember, roomOfMember }: CrowdedRelays): string {
  const most = `${count(linksOfMember, 'link')} of ${printable(member)}, and room for ${roomOfMember} of one member`
  return `${some(via)}: ${count(links, 'link')} between gateways, and room for ${room}; ${most}`
}

function modeText({ mode: { before, after } }: TopologyPlan): string {
  return before === after ? `mode ${after}` : `mode ${before} to ${after}`
}

function section(title: string, rows: readonly string[], all: number): string {
  if (all === 0) return ''
  const shown = rows.slice(0, MOST_ROWS)
  const rest = all > shown.length ? [`  and ${all - shown.length} more: -o json`] : []
  return [title, ...shown.map((row) => `  ${row}`), ...rest].map((line) => `${line}\n`).join('')
}

function pairText(clusters: readonly string[]): string {
  return printable(clusters.join(' – '))
}

/** Ids are what a broker says they are: none makes a line of its own. */
function some(ids: readonly string[], all = ids.length): string {
  const rest = all - Math.min(ids.length, MOST_ROWS)
  return `${printable(ids.slice(0, MOST_ROWS).join(', '))}${rest > 0 ? ` and ${rest} more` : ''}`
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}
