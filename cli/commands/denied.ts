/**
 * `sealane show denied`: samples of the packets from and to other clusters that the access rules refused. Only a command on the
 * node may read the page, so in a cluster the same command runs in the pod of each route agent.
 */
import type { Command } from 'commander'
import { UserError, messageOf } from '../../runtime/runtime.ts'
import {
  type ClusterAdmin,
  type CommandContext,
  LOCAL_SITE,
  type OutputFormat,
  type TargetOptions,
  addTargetOptions,
  lookTimeoutOption,
  outputOption,
  printItems,
  seenOtherwise,
  subcommand,
  targetToSee,
  withinTime,
} from '../context/context.ts'
import { pagesOption, pagesToAsk } from './status.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { type DeniedRow, readDenied } from '../status/status.ts'

const TEXT = 'Shows samples of the packets from and to other clusters that were refused here, the latest last.'
const MAX_PAGE = 1 << 18
const PAGE = '/debug/denied'

interface DeniedOptions extends TargetOptions {
  readonly output: OutputFormat
  readonly timeout: number
  readonly ask?: readonly string[]
}

/** Adds `denied` to `sealane show`. */
export function addShowDenied(show: Command, context: CommandContext): void {
  const { output } = context
  const command = subcommand(show, 'denied', TEXT, 'sealane show denied --context c1')
  addTargetOptions(command, seenOtherwise(LOCAL_SITE))
    .addOption(pagesOption())
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async ({ site, timeout, output: format, ask }: DeniedOptions) => {
      const target = targetToSee(command, context, site)
      const rows = await withinTime(context.signal, timeout, async (signal) => {
        if (target === undefined) return deniedHere(ask, signal)
        const { withAdmin } = await import('../context/with-admin.ts')
        const init = { ...context, signal }
        return withAdmin(target, new SystemClock(), init, ({ admin }) => deniedAtNodes(admin, context, signal))
      })
      const sorted = [...rows].sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))
      await printItems(output, format, sorted, [
        { title: 'AT', cell: (row) => row.at },
        { title: 'NODE', cell: (row) => row.node ?? '-', wide: true },
        {
          title: 'FROM',
          cell: ({ from, to }) => endText(to.cluster === undefined ? { cluster: '(no member)', ...from } : from),
        },
        { title: 'TO', cell: ({ to }) => endText(to) },
        { title: 'PORT', cell: ({ protocol, port }) => (port === undefined ? protocol : `${protocol} ${port}`) },
        { title: 'REASON', cell: (row) => row.reason },
      ])
    })
}

function endText({ cluster, address, namespace, service, pod }: DeniedRow['from']): string {
  const place = service === undefined && namespace !== undefined && pod !== undefined ? `${namespace}/${pod}` : pod
  return [cluster, address, service, place].filter((one) => one !== undefined).join(' ')
}

/** Asks the route agent on this machine. Throws UserError if none answers. */
export async function deniedHere(
  given: readonly string[] | undefined,
  signal: AbortSignal,
): Promise<readonly DeniedRow[]> {
  const { textOfPage } = await import('../status/ask.ts')
  const { STATUS_PORTS } = await import('../../install/values/values.ts')
  // Pages of other parts have no samples, and one process of all parts has one page for them.
  const likely = [`127.0.0.1:${STATUS_PORTS.routeagent}`, ...(await pagesToAsk(undefined))]
  const pages = [...new Set(given ?? likely)]
  const read = await Promise.allSettled(
    pages.map(async (page) => readDenied(await textOfPage(page, PAGE, MAX_PAGE, signal))),
  )
  signal.throwIfAborted()
  const answers = read.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const failed = read.findIndex(({ status }) => status === 'rejected')
  if (answers.length === 0 || (given !== undefined && failed >= 0)) {
    const cause: unknown = (read[failed] as PromiseRejectedResult).reason
    throw new UserError(`the routeagent at ${pages[failed] ?? ''}: ${messageOf(cause)}`, {
      hint: 'run it on a node, name the page with --ask, or a cluster with --context',
      cause,
    })
  }
  return answers.flat()
}

/** Nodes that give no answer are remarks. */
async function deniedAtNodes(
  admin: ClusterAdmin,
  { output }: CommandContext,
  signal: AbortSignal,
): Promise<readonly DeniedRow[]> {
  const { readFromRouteAgents } = await import('../status/probes/pod-probes.ts')
  const command = ['sealane', 'show', 'denied', '-o', 'json']
  const remark = (text: string): void => output.remark(text)
  const read = await readFromRouteAgents(admin, { command, read: readDenied, remark }, signal)
  return read.flatMap(({ node, value }) => value.map((row) => ({ ...row, node })))
}
