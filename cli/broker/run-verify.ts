/** The command line of `broker verify`, for the broker on this machine, one in a cluster, or a backup. */
import { existsSync } from 'node:fs'
import { DEFAULT_VALUES } from '../../install/values/values.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type Finding, type Verified, verifyWhat } from '../../compose/broker/broker.ts'
import {
  type Column,
  type CommandContext,
  type KubeTarget,
  type OutputFormat,
  printOne,
  renderTable,
  targetFlags,
} from '../context/context.ts'
import { clustersetWords, stateOf } from './which-clusterset.ts'

export interface RunVerifyOptions {
  readonly kube: KubeTarget | undefined
  readonly state: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
  readonly backup?: string
  readonly output: OutputFormat
  readonly timeout: number
}

const COLUMNS: readonly Column<Finding>[] = [
  { title: 'REASON', cell: ({ reason }) => reason },
  { title: 'WHERE', cell: ({ subject }) => subject },
  { title: 'WHAT', cell: ({ text }) => text },
]

/** Throws UserError (StateInconsistent) after it has printed the problems, and the errors of opening the store. */
export async function runVerify(options: RunVerifyOptions, context: CommandContext): Promise<void> {
  const { kube, backup } = options
  if (backup !== undefined && !existsSync(backup))
    throw new UserError(`${backup}: no such file`, { hint: 'name a file that sealane broker backup has written' })
  const verified =
    kube === undefined || backup !== undefined
      ? await verifyWhat(backup === undefined ? { state: await stateOf(options) } : options)
      : await inPod(kube, options, context)
  await printOne(context.output, options.output, verified, textOf(verified))
  const { found, findings } = verified
  if (found === 0) return
  const shown = found > findings.length ? `, of which ${findings.length} are listed` : ''
  throw new UserError(`${found} ${found === 1 ? 'thing is' : 'things are'} wrong in it${shown}`, {
    reason: 'StateInconsistent',
    hint: 'keep a copy as it is; then restore a backup in which nothing is wrong: sealane broker verify --backup FILE',
  })
}

function textOf(verified: Verified): string {
  const { clusterset, epoch, revision, rows, members, records, findings } = verified
  if (findings.length > 0) return renderTable(COLUMNS, findings)
  const whose = clusterset === undefined ? 'no clusterset yet' : `clusterset ${clusterset}`
  return `nothing is wrong: ${whose}, ${members} members, ${records} records, ${rows} rows; revision ${revision} of epoch ${epoch}\n`
}

/** Runs the same command in the broker's pod. That command fails if it finds problems, but its output is still used. */
async function inPod(
  kube: KubeTarget,
  { timeout, clusterset }: RunVerifyOptions,
  context: CommandContext,
): Promise<Verified> {
  const { withAdmin } = await import('../context/with-admin.ts')
  const { brokerPod } = await import('./pod-broker.ts')
  const { STATE, refusedInPod } = await import('./pod-broker.ts')
  const { signal } = context
  return withAdmin(kube, new SystemClock(), context, async ({ admin }) => {
    const { namespace } = DEFAULT_VALUES.broker
    const pod = await brokerPod(admin, { namespace, flags: targetFlags(kube, admin.contextName) }, signal)
    const command = ['sealane', 'broker', 'verify', '--state', STATE, ...clustersetWords(clusterset), '-o', 'json']
    const place = { namespace, pod, container: 'broker', command, timeoutMs: timeout }
    const { stdout, stderr } = await admin.exec(place, signal)
    try {
      return JSON.parse(stdout) as Verified
    } catch {
      throw refusedInPod(admin, stderr)
    }
  })
}
