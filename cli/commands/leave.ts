/** `sealane leave`: takes a site out of the clusterset and Sealane out of its kernels. */
import type { Command } from 'commander'
import { parseDnsLabel } from '../../model/ids.ts'
import { readMemberIdentity } from '../../protocol/identity/member-files.ts'
import { UserError } from '../../runtime/user-error.ts'
import { type CommandContext, durationOption, parsed, subcommand } from '../context.ts'
import { PlainLogger } from '../plain-logger.ts'
import { withSite } from '../site.ts'
import { type TargetOptions, addTargetOptions, kubeTarget } from '../target.ts'

interface LeaveOptions extends TargetOptions {
  readonly timeout: number
  readonly force: boolean
  readonly node?: string
}

export function addLeaveCommand(program: Command, { signal, output }: CommandContext): void {
  const command = subcommand(
    program,
    'leave',
    'Takes a site or a cluster out of the clusterset; its nodes are left as they were.',
    'sealane leave --site site.yaml',
  )
  addTargetOptions(command)
    .addOption(durationOption('--timeout', 'how long to wait for the nodes', 30_000))
    .option('--force', 'leave although the broker cannot be told, or a node does not clean up', false)
    .option(
      '--node <name>',
      'only take Sealane out of the kernel of this node, after the site has left without it',
      parsed((text) => parseDnsLabel(text, '--node')),
    )
    .action(async (options: LeaveOptions) => {
      const target = kubeTarget(options)
      if (target !== undefined) {
        if (options.node !== undefined) {
          throw new UserError('--node: only for a site file: in a real cluster every node cleans up by itself', {
            exitCode: 2,
          })
        }
        const { runLeaveKube } = await import('../kube/run-leave.ts')
        return runLeaveKube(target, { ...options, timeoutMs: options.timeout }, { signal, output })
      }
      if (options.node !== undefined) return leaveNode(options.node, options, { signal, output })
      await withSite(options.site, { signal, output }, async (site) => {
        const { leaveClusterset } = await import('../leave.ts')
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

/** A node that was away while its site left: nobody else can do this for it. */
async function leaveNode(
  node: string,
  { site: file, force }: LeaveOptions,
  { signal, output }: CommandContext,
): Promise<void> {
  if (process.getuid?.() !== 0) {
    throw new UserError('leave --node: must run as root: it changes routes, nftables and WireGuard')
  }
  await withSite(file, { signal, output }, async (site) => {
    if (!force && (await isMember(site.config.identity))) {
      throw new UserError('this site is a member: its nodes clean up when it leaves', {
        hint: `leave with: sealane leave --site ${file}; to take the lanes down on this node all the same, add --force`,
      })
    }
    const { cleanNode } = await import('../compose-clean.ts')
    await cleanNode(site, { node, logger: new PlainLogger(output), signal })
    output.answer('this node is free of Sealane\n')
  })
}

/** A damaged identity is one all the same. */
function isMember(directory: string): Promise<boolean> {
  return readMemberIdentity(directory).then(
    (identity) => identity !== undefined,
    () => true,
  )
}
