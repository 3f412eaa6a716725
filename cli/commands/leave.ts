/** `sealane leave`: takes a site out of the clusterset and Sealane out of its kernels. */
import type { Command } from 'commander'
import { type CommandContext, durationOption, siteOption, subcommand } from '../context.ts'
import { withSite } from '../site.ts'

interface LeaveOptions {
  readonly site: string
  readonly timeout: number
  readonly force: boolean
}

export function addLeaveCommand(program: Command, { signal, output }: CommandContext): void {
  subcommand(
    program,
    'leave',
    'Takes this site out of the clusterset; its nodes are left as they were.',
    'sealane leave --site site.yaml',
  )
    .addOption(siteOption())
    .addOption(durationOption('--timeout', 'how long to wait for the nodes', 30_000))
    .option('--force', 'leave although the broker cannot be told, or a node does not clean up', false)
    .action(async (options: LeaveOptions) => {
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
