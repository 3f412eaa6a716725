/** `sealane version`: the version of this program and of the parts in a cluster. */
import type { Command } from 'commander'
import { messageOf, sealaneVersion } from '../../runtime/runtime.ts'
import {
  type CommandContext,
  type KubeTarget,
  type OutputFormat,
  addKubeOptions,
  lookTimeoutOption,
  outputOption,
  printOne,
  renderTable,
  subcommand,
  targetFlags,
  targetToAsk,
  withinTime,
} from '../context/context.ts'
import type { PartVersion } from '../status/status.ts'

interface VersionOptions extends KubeTarget {
  readonly output: OutputFormat
  readonly client: boolean
  readonly timeout: number
}

const AT_HOME = '~/.kube/config, if it exists'

export function addVersionCommand(program: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Prints the versions of Sealane and Node.js; with a cluster, also those of its parts and broker.'
  const command = addKubeOptions(subcommand(program, 'version', text, 'sealane version -o json'), AT_HOME)
  command
    .option('--client', 'print only the version of this program', false)
    .addOption(lookTimeoutOption(5000))
    .addOption(outputOption())
    .action(async (options: VersionOptions) => {
      const target = options.client ? undefined : targetToAsk(command, context)
      const cluster = target === undefined ? undefined : await clusterVersions(target, options.timeout, context)
      const version = { sealane: sealaneVersion(), node: process.versions.node }
      const lines = `sealane ${version.sealane} (node ${version.node})\n${cluster === undefined ? '' : tableOf(cluster)}`
      await printOne(output, options.output, cluster === undefined ? version : { ...version, cluster }, lines)
    })
}

type ClusterVersions = { readonly parts: readonly PartVersion[] } | { readonly unknown: string }

/** Each query has its own time limit. An unreachable cluster is no failure: the client's version is still printed. */
async function clusterVersions(target: KubeTarget, ms: number, context: CommandContext): Promise<ClusterVersions> {
  const { signal } = context
  const { SystemClock } = await import('../../reconcile/clock.ts')
  const { withAdmin } = await import('../context/with-admin.ts')
  const { readVersions } = await import('../status/read-versions.ts')
  try {
    return await withAdmin(target, new SystemClock(), context, async ({ admin }) => ({
      parts: await readVersions(admin, {
        flags: targetFlags(target, admin.contextName),
        signal,
        limited: (ask) => withinTime(signal, ms, ask),
      }),
    }))
  } catch (error) {
    signal.throwIfAborted()
    return { unknown: messageOf(error) }
  }
}

function tableOf(cluster: ClusterVersions): string {
  if ('unknown' in cluster) return `cluster unknown: ${cluster.unknown}\n`
  return renderTable<PartVersion>(
    [
      { title: 'PART', cell: (row) => row.part },
      { title: 'VERSION', cell: (row) => row.version ?? `unknown: ${row.unknown ?? 'not reported'}` },
      { title: 'BY', cell: (row) => row.source ?? '-' },
      { title: 'IMAGE', cell: (row) => row.image ?? '-' },
    ],
    cluster.parts,
  )
}
