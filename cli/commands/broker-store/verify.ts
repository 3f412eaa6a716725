/** `sealane broker verify`: looks whether what a broker knows can be right. */
import type { Command } from 'commander'
import {
  type CommandContext,
  clustersetOption,
  durationOption,
  outputOption,
  stateOption,
  subcommand,
} from '../../context.ts'
import type { OutputFormat } from '../../output.ts'
import { type KubeTarget, LOCAL_BROKER, addKubeOptions, seenOtherwise, targetToSee } from '../../target.ts'

interface VerifyOptions extends KubeTarget {
  readonly state: string
  readonly clusterset?: string
  readonly backup?: string
  readonly output: OutputFormat
  readonly timeout: number
}

export function addBrokerVerifyCommand(broker: Command, context: CommandContext): void {
  const text = 'Looks through all that the broker has stored, and lists what cannot be right. Changes nothing.'
  const command = subcommand(broker, 'verify', text, 'sealane broker verify --backup broker.backup')
  addKubeOptions(command, seenOtherwise(LOCAL_BROKER))
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--backup <file>', 'of a backup, as broker backup has written it, instead of a broker')
    .addOption(outputOption())
    .addOption(durationOption('--timeout', 'how long it may take in a cluster', 300_000))
    .action(async (options: VerifyOptions) => {
      const { runVerify } = await import('../../broker/run-verify.ts')
      const kube = options.backup === undefined ? targetToSee(command, context, options.state) : undefined
      await runVerify({ ...options, kube }, context)
    })
}
