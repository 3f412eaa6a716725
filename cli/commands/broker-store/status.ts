/** `sealane broker status`: how the broker is, with its replicas and its store. */
import type { Command } from 'commander'
import type { CommandContext } from '../../context.ts'
import { outputOption, stateOption, subcommand } from '../../context.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { type ShownStatus, statusText } from '../../broker/status-text.ts'
import { type OutputFormat, printOne } from '../../output.ts'
import { type KubeTarget, LOCAL_BROKER, addKubeOptions, seenOtherwise, targetFlags, targetToSee } from '../../target.ts'
import { lookTimeoutOption, withinTime } from '../../within-time.ts'

interface StatusOptions extends KubeTarget {
  readonly state: string
  readonly output: OutputFormat
  readonly timeout: number
}

export function addBrokerStatusCommand(broker: Command, context: CommandContext): void {
  const text =
    'Shows how the broker is, with its replicas and its store. Exit code 0: healthy, 1: degraded, 2: down. Changes nothing.'
  const command = subcommand(broker, 'status', text, 'sealane broker status --context hub')
  addKubeOptions(command, seenOtherwise(LOCAL_BROKER))
    .addOption(stateOption())
    .addOption(lookTimeoutOption(60_000))
    .addOption(outputOption())
    .action(async (options: StatusOptions) => {
      const kube = targetToSee(command, context, options.state)
      const status = await (kube === undefined ? here(options, context) : onCluster(kube, options, context))
      await printOne(context.output, options.output, status, statusText(status))
      const { health, problems } = status
      if (health === 'healthy') return
      const [first] = problems.filter((one) => one.health === health)
      throw new UserError(`the broker is ${health}: ${first?.text ?? ''}`, { exitCode: health === 'down' ? 2 : 1 })
    })
}

async function here({ state }: StatusOptions, { signal }: CommandContext): Promise<ShownStatus> {
  const { brokerStatus } = await import('../../../compose/parts/broker-status.ts')
  const broker = await brokerStatus(state, signal)
  const { health, problems } = broker
  return { health, problems, broker }
}

async function onCluster(kube: KubeTarget, { timeout }: StatusOptions, context: CommandContext): Promise<ShownStatus> {
  const { withAdmin } = await import('../../kube/access/with-admin.ts')
  const { podStatus } = await import('../../kube/broker/pod-status.ts')
  const { worstOf } = await import('../../../compose/parts/broker-status.ts')
  return withinTime(context.signal, timeout, (signal) =>
    withAdmin(kube, new SystemClock(), { ...context, signal }, async ({ admin }) => {
      const status = await podStatus(admin, targetFlags(kube, admin.contextName), signal)
      return { health: worstOf(status.problems), ...status }
    }),
  )
}
