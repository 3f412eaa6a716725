/** What a site or a cluster does as a member: `sealane join`, `export`, `unexport`, `leave`, `uninstall`. */
import type { Command } from 'commander'
import { parseClusterId } from '../../model/ids.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { parseDuration } from '../../runtime/duration.ts'
import { type CommandContext, parsed, subcommand } from '../context.ts'
import { type JoinKubeOptions, addJoinKubeOptions, refuseKubeOptions } from '../kube/join/join-options.ts'
import { type TokenOptions, readTokenText } from '../broker/read-token.ts'
import { type KubeTarget, type TargetOptions, addTargetOptions, envOf, targetToJoin } from '../target.ts'

interface JoinOptions extends TokenOptions, TargetOptions, JoinKubeOptions {
  readonly clusterId?: string
  readonly approvalTimeout?: number
}

/** `sealane join`: makes a key, trades a token for a certificate, writes both into the site's state. */
export function addJoinCommand(program: Command, context: CommandContext): void {
  const { signal, output } = context
  const command = subcommand(
    program,
    'join',
    'Joins a cluster, or a site without Kubernetes, to a clusterset.',
    'sealane join --context c1 --token-file token.txt',
  )
  addJoinKubeOptions(addTargetOptions(command))
    .option('--token <token>', 'the token itself; --token-file keeps it off the process list')
    .option('--token-file <file>', 'a file with the token, - for standard input')
    .option(
      '--cluster-id <id>',
      "this cluster's id (default: the site's, or the context's, name)",
      parsed((text: string) => parseClusterId(text, '--cluster-id')),
    )
    .option(
      '--approval-timeout <duration>',
      'how long to wait where an operator of the broker has to accept this cluster (default: until the token ends)',
      parsed((text: string) => parseDuration(text, '--approval-timeout', { minMs: 1000 })),
    )
    .action(async (options: JoinOptions) => {
      const target = targetToJoin(command, context)
      if (target !== undefined) return joinKube(target, options, context)
      refuseKubeOptions(command)
      const token = await readTokenText(options, { env: process.env, stdin: process.stdin, signal })
      const { withSite } = await import('../open-site.ts')
      await withSite(options.site, { signal, output }, async (site) => {
        const { joinClusterset } = await import('../site/join.ts')
        const joined = await joinClusterset(site, {
          token,
          clusterId: parseClusterId(options.clusterId ?? site.config.name, 'site name'),
          clock: new SystemClock(),
          signal,
          approvalMs: options.approvalTimeout,
          say: (text) => output.remark(`${text}\n`),
          confirm: await confirmAt(context),
        })
        const global =
          joined.globalCIDRs.length === 0 ? 'its own addresses' : `global addresses ${joined.globalCIDRs.join(', ')}`
        output.answer(`${joined.cluster} has joined clusterset ${joined.clusterset} with ${global}\n`)
        output.remark(`next, on each node: sealane up --site ${options.site} --node NAME\n`)
      })
    })
}

/** Undefined where nobody sits. A site's command is run by scripts too, so it asks only at a terminal. */
async function confirmAt(context: CommandContext): Promise<((question: string) => Promise<boolean>) | undefined> {
  const { terminalOf } = await import('../confirm.ts')
  const terminal = terminalOf(context)
  if (terminal === undefined) return undefined
  const { lineFromTerminal } = await import('../ask-at-terminal.ts')
  return async (question) => {
    const said = await lineFromTerminal(`${question}? Type yes: `, context.signal, terminal)
    return said.trim().toLowerCase() === 'yes'
  }
}

/** Loaded only then: a plain site needs none of it. */
async function joinKube(target: KubeTarget, options: JoinOptions, context: CommandContext): Promise<void> {
  if (target.by !== undefined && !options.dryRun && options.output === undefined) {
    const { confirm } = await import('../confirm.ts')
    const what = `Join the current context of ${target.by} (${envOf(context)[target.by] ?? ''})`
    await confirm({ what, yes: options.yes, command: 'sealane join --context NAME, or with --yes' }, context)
  }
  const { runJoinKube } = await import('../kube/join/run-join.ts')
  await runJoinKube(target, options, context)
}
