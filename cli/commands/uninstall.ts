/** `sealane uninstall`: takes everything of Sealane out of a cluster, the broker included. */
import type { Command } from 'commander'
import { UserError } from '../../runtime/user-error.ts'
import { type CommandContext, durationOption, subcommand } from '../context.ts'
import { type KubeTarget, addKubeOptions, targetToChange } from '../target.ts'

interface UninstallOptions extends KubeTarget {
  readonly crds: boolean
  readonly deleteData: boolean
  readonly evictMembers: boolean
  readonly yes: boolean
  readonly force: boolean
  readonly timeout: number
}

export function addUninstallCommand(program: Command, context: CommandContext): void {
  const command = subcommand(
    program,
    'uninstall',
    'Leaves the clusterset and removes everything of Sealane from a cluster, the broker included.',
    'sealane uninstall --context c1 --crds',
  )
  addKubeOptions(command)
    .option('--crds', 'the CRDs too; those of the Kubernetes project only while nothing uses them', false)
    .option('--delete-data', "the broker's volume and Service too: members, addresses, certificate authority", false)
    .option(
      '--evict-members',
      'the broker also while it has members in contact, which are evicted, or cannot be asked',
      false,
    )
    .option('--yes', 'do not ask', false)
    .option('--force', 'although the broker cannot be reached, or a node does not clean up', false)
    .addOption(durationOption('--timeout', 'how long to wait for each step', 60_000))
    .action(async (options: UninstallOptions) => {
      const target = targetToChange(command, context)
      if (target === undefined) {
        throw new UserError(
          'uninstall: expected --context, --kubeconfig or KUBECONFIG, so that it is certain which cluster is meant',
          { exitCode: 2 },
        )
      }
      const { runUninstall } = await import('../kube/leave/run-leave.ts')
      await runUninstall(target, { ...options, timeoutMs: options.timeout }, context)
    })
}
