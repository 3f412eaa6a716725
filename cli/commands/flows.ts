/**
 * `sealane top` and `sealane flows`: who calls whom, as the route agents count and sample it. Only a command on the node
 * may read their pages, so in a cluster `sealane top services --page` runs in the pod of each route agent.
 */
import { type Command, Option } from 'commander'
import { parseClusterId, parseDnsLabel } from '../../model/model.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError, messageOf } from '../../runtime/runtime.ts'
import {
  type Column,
  type CommandContext,
  type KubeTarget,
  LOCAL_SITE,
  type OutputFormat,
  type TargetOptions,
  addTargetOptions,
  choiceOption,
  kubeTarget,
  lookTimeoutOption,
  outputOption,
  parsed,
  printItems,
  quoted,
  seenOtherwise,
  subcommand,
  targetToSee,
  withinTime,
} from '../context/context.ts'
import {
  FLOW_GROUPS,
  FLOW_ORDERS,
  type FlowFilter,
  type FlowGroup,
  type FlowOrder,
  type NodeFlows,
  type TopRow,
  flowLines,
  linesToKnow,
  newLines,
  readFlows,
  topRows,
} from '../status/status.ts'
import { lookAgain, pagesOption, pagesToAsk, screenStart } from './status.ts'

const TOP_TEXT =
  'Shows who calls whom: calls, refusals, calls without an answer, time-outs among a sample of those that ended, octets and connect times, by service, by cluster that answers, or by calling namespace.'
const FLOWS_TEXT =
  'Shows samples of calls between clusters, the latest last, with outcome and reason. `sealane top` counts all calls.'
const PAGE = '/debug/flows'
/** 1,000 rows and 400 lines. */
const MAX_PAGE = 1 << 20

interface LookOptions extends TargetOptions {
  readonly output: OutputFormat
  readonly timeout: number
  readonly ask?: readonly string[]
  readonly watch: boolean
}

interface TopOptions extends LookOptions {
  readonly sort: FlowOrder
  readonly page?: boolean
}

export function addTopCommand(program: Command, context: CommandContext): void {
  const command = subcommand(program, 'top', TOP_TEXT, 'sealane top services --context c1 --watch')
    .argument('<what>', FLOW_GROUPS.join(', '), parsed(parseGroup))
    .addOption(choiceOption('--sort <by>', 'order of the rows', FLOW_ORDERS, 'calls' satisfies FlowOrder))
    .addOption(new Option('--page').hideHelp())
  lookOptions(command).action(async (group: FlowGroup, options: TopOptions) => {
    if (options.page === true) {
      const [page] = await withinTime(context.signal, options.timeout, (signal) => flowsHere(options.ask, signal))
      context.output.answer(`${JSON.stringify({ ...page, denied: [] })}\n`)
      return
    }
    await looking(command, options, context, async (pages) => {
      remarkProblems(pages, context)
      const rows = topRows(pages, group, options.sort)
      if (options.watch && options.output === 'json') {
        context.output.answer(`${JSON.stringify({ items: rows })}\n`)
        return
      }
      if (options.watch) context.output.answer(options.output === 'yaml' ? '---\n' : screenStart(context))
      await printItems(context.output, options.output, rows, topColumns(group))
    })
  })
}

function topColumns(group: FlowGroup): readonly Column<TopRow>[] {
  const title = { services: 'SERVICE', clusters: 'CLUSTER', callers: 'CALLER' }[group]
  const number = (name: string, cell: (row: TopRow) => string, wide = false): Column<TopRow> => ({
    ...{ title: name, cell, align: 'right' },
    ...(wide ? { wide: true } : {}),
  })
  const ms = (value: number | undefined): string => (value === undefined ? '-' : `${value} ms`)
  return [
    { title, cell: ({ name }) => name },
    number('CALLS/S', ({ callsPerSecond }) => String(callsPerSecond)),
    number('REFUSED', ({ recent }) => String(recent.refused)),
    number('UNANSWERED', ({ recent }) => String(recent.unanswered)),
    number('TIMED OUT', ({ recent }) => sampleText(recent)),
    number('BYTES/S', ({ bytesPerSecond }) => String(bytesPerSecond)),
    number('P50', ({ p50Ms }) => ms(p50Ms)),
    number('P90', ({ p90Ms }) => ms(p90Ms), true),
    number('P99', ({ p99Ms }) => ms(p99Ms)),
    number('TOTAL', ({ total }) => String(total.opened)),
    number('TOTAL REFUSED', ({ total }) => String(total.refused), true),
    number('TOTAL UNANSWERED', ({ total }) => String(total.unanswered), true),
    number('TOTAL TIMED OUT', ({ total }) => sampleText(total), true),
  ]
}

/** Time-outs are counted in a sample. */
function sampleText({ ended, timedOut }: TopRow['recent']): string {
  return ended === 0 ? '-' : `${timedOut} of ${ended}`
}

interface FlowsOptions extends LookOptions, FlowFilter {}

type Line = ReturnType<typeof flowLines>[number]

const LINE_COLUMNS: readonly Column<Line>[] = [
  { title: 'AT', cell: ({ at }) => at },
  { title: 'NODE', cell: ({ node }) => node ?? '-', wide: true },
  { title: 'FROM', cell: ({ from }) => endText(from) },
  { title: 'TO', cell: ({ to }) => endText(to) },
  { title: 'PORT', cell: ({ protocol, port }) => (port === undefined ? protocol : `${protocol} ${port}`) },
  { title: 'OUTCOME', cell: ({ outcome }) => outcome },
  { title: 'MS', cell: ({ ms }) => (ms === undefined ? '-' : String(ms)), align: 'right' },
  { title: 'REASON', cell: ({ reason }) => reason ?? '-' },
]

export function addFlowsCommand(program: Command, context: CommandContext): void {
  const command = subcommand(program, 'flows', FLOWS_TEXT, 'sealane flows --from shop --cluster paris --watch')
    .option(
      '--from <namespace>',
      'only calls of pods of this namespace',
      parsed((text: string) => parseDnsLabel(text, '--from')),
    )
    .option('--to <service>', 'only calls to this service: NAMESPACE/NAME or NAME', parsed(parseService))
    .option('--cluster <id>', 'only calls to or from this cluster', parsed(parseClusterId))
    .option('--denied', 'only packets that access rules refused')
  lookOptions(command).action(async (options: FlowsOptions) => {
    let before: readonly Line[] | undefined
    const { output } = context
    await looking(command, options, context, async (pages) => {
      if (before === undefined) {
        const most = Math.max(0, ...pages.map(({ sampled }) => sampled))
        output.remark(`samples: at most ${most} calls a second of each node\n`)
        remarkProblems(pages, context)
      }
      const lines = flowLines(pages, options)
      const shown = before === undefined ? lines : newLines(lines, before)
      const isFirst = before === undefined
      before = linesToKnow(pages, lines, before ?? [])
      if (!isFirst && shown.length === 0) return
      if (options.watch && options.output === 'json')
        for (const line of shown) output.answer(`${JSON.stringify(line)}\n`)
      else {
        if (options.watch && options.output === 'yaml') output.answer('---\n')
        await printItems(output, options.output, shown, LINE_COLUMNS)
      }
    })
  })
}

function endText({ cluster, namespace, pod, address, service }: Line['from']): string {
  const where = [namespace, pod].filter((one) => one !== undefined).join('/')
  return [cluster, where === '' ? undefined : where, address, service].filter((one) => one !== undefined).join(' ')
}

function lookOptions(command: Command): Command {
  return addTargetOptions(command, seenOtherwise(LOCAL_SITE))
    .addOption(pagesOption())
    .option('--watch', 'repeat every two seconds until interrupted', false)
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
}

async function looking(
  command: Command,
  { site, ask, timeout, watch }: LookOptions,
  context: CommandContext,
  show: (pages: readonly NodeFlows[]) => Promise<void>,
): Promise<void> {
  const look = async (target: KubeTarget | undefined): Promise<void> => {
    const pages = await withinTime(context.signal, timeout, (signal) =>
      target === undefined ? flowsHere(ask, signal) : pagesOfNodes(target, { ...context, signal }),
    )
    await show(pages)
  }
  const target = targetToSee(command, context, site)
  await look(target)
  // The name of the selected cluster is printed once.
  if (watch) await lookAgain(context, () => look(target && (kubeTarget(target) ?? {})))
}

function remarkProblems(pages: readonly NodeFlows[], { output }: CommandContext): void {
  for (const { node, problem } of pages)
    if (problem !== undefined) output.remark(`${node === undefined ? '' : `node ${node}: `}${problem}\n`)
}

/** Asks the route agent on this machine. Throws UserError if none answers. */
export async function flowsHere(
  given: readonly string[] | undefined,
  signal: AbortSignal,
): Promise<readonly NodeFlows[]> {
  const { textOfPage } = await import('../status/ask.ts')
  const { STATUS_PORTS } = await import('../../install/values/values.ts')
  // One process of all parts has one page for them.
  const likely = [`127.0.0.1:${STATUS_PORTS.routeagent}`, ...(await pagesToAsk(undefined))]
  const places = [...new Set(given ?? likely)]
  const read = await Promise.allSettled(
    places.map(async (place) => readFlows(await textOfPage(place, PAGE, MAX_PAGE, signal))),
  )
  signal.throwIfAborted()
  const answers = read.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const failed = read.findIndex(({ status }) => status === 'rejected')
  if (answers.length === 0 || (given !== undefined && failed >= 0)) {
    const cause: unknown = (read[failed] as PromiseRejectedResult).reason
    throw new UserError(`the routeagent at ${places[failed] ?? ''}: ${messageOf(cause)}`, {
      hint: 'run it on a node, name the page with --ask, or a cluster with --context',
      cause,
    })
  }
  return answers
}

/** Nodes that give no answer are remarks. */
async function pagesOfNodes(target: KubeTarget, context: CommandContext): Promise<readonly NodeFlows[]> {
  const { withAdmin } = await import('../context/with-admin.ts')
  const { flowsOfNodes } = await import('../status/flows/flows-of-nodes.ts')
  const remark = (text: string): void => context.output.remark(text)
  return withAdmin(target, new SystemClock(), context, ({ admin }) => flowsOfNodes(admin, remark, context.signal))
}

/** Throws UserError. */
function parseGroup(text: string): FlowGroup {
  const found = FLOW_GROUPS.find((one) => one === text)
  if (found !== undefined) return found
  throw new UserError(`${quoted(text)}: expected ${FLOW_GROUPS.join(', ')}`)
}

/** Throws UserError. */
function parseService(text: string): string {
  if (/^[a-z0-9-]{1,63}(\/[a-z0-9-]{1,63})?$/.test(text)) return text
  throw new UserError(`--to ${quoted(text)}: expected NAMESPACE/NAME or NAME, such as shop/web`)
}
