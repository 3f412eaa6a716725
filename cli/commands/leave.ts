/** `sealane leave`: takes a site out of the clusterset and Sealane out of its kernels. */
import type { Command } from 'commander'
import { MEMBERSHIP_NAME } from '../../model/objects.ts'
import { parseDuration } from '../../runtime/duration.ts'
import { type CommandContext, parsed, siteOption, subcommand } from '../context.ts'
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
    .option(
      '--timeout <duration>',
      'how long to wait for the nodes',
      parsed((text: string) => parseDuration(text, '--timeout')),
      30_000,
    )
    .option('--force', 'leave although the broker cannot be told (it must evict this cluster)', false)
    .action(async (options: LeaveOptions) => {
      await withSite(options.site, signal, async (site) => {
        const { leaveClusterset } = await import('../leave.ts')
        const id = site.cluster.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clusterId
        await leaveClusterset(site, {
          timeoutMs: options.timeout,
          force: options.force,
          signal,
          say: (text) => output.remark(`${text}\n`),
        })
        output.answer(`${id ?? site.config.name} has left the clusterset\n`)
      })
    })
}
