/** `sealane leave`: takes a site or a cluster out of the clusterset, and Sealane out of its kernels. */
import type { Command } from 'commander'
import { parseDnsLabel } from '../../model/ids.ts'
import { UserError } from '../../runtime/user-error.ts'
import { type CommandContext, durationOption, parsed, subcommand } from '../context.ts'
import { type TargetOptions, addTargetOptions, targetToJoin } from '../target.ts'

interface LeaveOptions extends TargetOptions {
  readonly timeout: number
  readonly force: boolean
  readonly yes: boolean
  readonly node?: string
}

export function addLeaveCommand(program: Command, context: CommandContext): void {
  const { signal, output } = context
  const command = subcommand(
    program,
    'leave',
    'Takes a site or a cluster out of the clusterset; its nodes are left as they were.',
    'sealane leave --site site.yaml',
  )
  addTargetOptions(command)
    .addOption(durationOption('--timeout', 'how long to wait for the nodes', 30_000))
    .option('--yes', 'do not ask', false)
    .option('--force', 'leave although the broker cannot be reached, or a node does not clean up', false)
    .option(
      '--node <name>',
      'only take Sealane out of the kernel of this node, after the site has left without it',
      parsed((text) => parseDnsLabel(text, '--node')),
    )
    .action(async (options: LeaveOptions) => {
      const target = targetToJoin(command, context)
      if (target !== undefined) {
        if (options.node !== undefined) {
          throw new UserError('--node: only for a site file: in a real cluster every node cleans up by itself', {
            exitCode: 2,
          })
        }
        const { runLeaveKube } = await import('../kube/leave/run-leave.ts')
        return runLeaveKube(target, { ...options, timeoutMs: options.timeout }, context)
      }
      if (options.node !== undefined) {
        const { leaveNode } = await import('../site/leave-node.ts')
        return leaveNode(options.node, options, { signal, output })
      }
      const { withSite } = await import('../open-site.ts')
      await withSite(options.site, { signal, output }, async (site) => {
        const { confirmSiteLeave, leaveClusterset } = await import('../site/leave.ts')
        await confirmSiteLeave(site, options, context)
        const id = await leaveClusterset(site, {
          timeoutMs: options.timeout,
          force: options.force,
          signal,
          say: (text) => output.remark(`${text}\n`),
        })
        output.answer(`${id} has left the clusterset\n`)
      })
    })
}
