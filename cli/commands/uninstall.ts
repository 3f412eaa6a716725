/** `sealane uninstall`: takes everything of Sealane out of a cluster, the broker included. */
import type { Command } from 'commander'
import { UserError } from '../../runtime/user-error.ts'
import { type CommandContext, durationOption, subcommand } from '../context.ts'
import { type KubeTarget, addKubeOptions, kubeTarget } from '../target.ts'

interface UninstallOptions extends KubeTarget {
  readonly crds: boolean
  readonly force: boolean
  readonly timeout: number
}

export function addUninstallCommand(program: Command, { signal, output }: CommandContext): void {
  const command = subcommand(
    program,
    'uninstall',
    'Leaves the clusterset and removes everything of Sealane from a cluster, the broker included.',
    'sealane uninstall --context c1 --crds',
  )
  addKubeOptions(command)
    .option('--crds', 'the CRDs too; those of the Kubernetes project only while nothing uses them', false)
    .option('--force', 'although the broker cannot be told, or a node does not clean up', false)
    .addOption(durationOption('--timeout', 'how long to wait for each step', 60_000))
    .action(async (options: UninstallOptions) => {
      const target = kubeTarget(options)
      if (target === undefined) {
        throw new UserError(
          'uninstall: expected --context or --kubeconfig, so that it is certain which cluster is meant',
          {
            exitCode: 2,
          },
        )
      }
      const { runUninstall } = await import('../kube/run-leave.ts')
      const { crds, force, timeout } = options
      await runUninstall(target, { crds, force, timeoutMs: timeout }, { signal, output })
    })
}
