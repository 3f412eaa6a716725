/**
 * `sealane gateway drain|undrain`: moves the traffic away from a gateway before its node is removed, and moves it back.
 */
import type { Command } from 'commander'
import { isDnsSubdomain } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  type CommandContext,
  type KubeTarget,
  addKubeOptions,
  durationOption,
  parsed,
  quoted,
  subcommand,
  targetToChange,
} from '../context/context.ts'

interface DrainOptions extends KubeTarget {
  readonly force: boolean
  readonly timeout: number
}

export function addGatewayCommand(program: Command, context: CommandContext): void {
  const gateway = subcommand(
    program,
    'gateway',
    'Takes the traffic off a gateway of a cluster and gives it back, and has keys made anew.',
    'sealane gateway drain n1 --context c1',
  )
  const drain = subcommand(
    gateway,
    'drain',
    'Has all traffic leave a gateway, and says when nothing flows over it any more.',
    'sealane gateway drain n1 --context c1',
  ).argument('<node>', 'the name of its Node', parsed(nodeName))
  addKubeOptions(drain)
    .option('--force', 'mark it although it is the only gateway that is active', false)
    .addOption(durationOption('--timeout', 'how long to wait', 60_000))
    .action(async (node: string, options: DrainOptions) => {
      const { withAdmin } = await import('../context/with-admin.ts')
      const { drainGateway } = await import('../cluster/drain-gateway.ts')
      const { SystemClock } = await import('../../reconcile/clock.ts')
      const clock = new SystemClock()
      const { signal, output } = context
      const say = (text: string): void => output.remark(text)
      await withAdmin(clusterOf(drain, context), clock, { signal, output }, async ({ admin }) => {
        const init = { force: options.force, timeoutMs: options.timeout, clock, signal, say }
        output.answer(`${await drainGateway(admin, node, init)}\n`)
      })
    })
  const undrain = subcommand(
    gateway,
    'undrain',
    'Gives a gateway that was drained its traffic back.',
    'sealane gateway undrain n1 --context c1',
  ).argument('<node>', 'the name of its Node', parsed(nodeName))
  addKubeOptions(undrain).action(async (node: string) => {
    const { withAdmin } = await import('../context/with-admin.ts')
    const { undrainGateway } = await import('../cluster/drain-gateway.ts')
    const { SystemClock } = await import('../../reconcile/clock.ts')
    const { signal, output } = context
    const say = (text: string): void => output.remark(text)
    await withAdmin(clusterOf(undrain, context), new SystemClock(), { signal, output }, async ({ admin }) => {
      output.answer(`${await undrainGateway(admin, node, { signal, say })}\n`)
    })
  })
  addRotateKeys(gateway, context)
}

interface RotateOptions extends KubeTarget {
  readonly timeout: number
}

function addRotateKeys(gateway: Command, context: CommandContext): void {
  const rotate = subcommand(
    gateway,
    'rotate-keys',
    'Has gateways make their keys anew, one after the other, while they carry.',
    'sealane gateway rotate-keys n1 --context c1',
  ).argument('[node]', 'the name of its Node; none: all gateways of the cluster', parsed(nodeName))
  addKubeOptions(rotate)
    .addOption(durationOption('--timeout', 'how long to wait', 300_000))
    .action(async (node: string | undefined, options: RotateOptions) => {
      const { withAdmin } = await import('../context/with-admin.ts')
      const { rotateKeys } = await import('../cluster/rotate-keys.ts')
      const { SystemClock } = await import('../../reconcile/clock.ts')
      const clock = new SystemClock()
      const { signal, output } = context
      const say = (text: string): void => output.remark(text)
      await withAdmin(clusterOf(rotate, context, ROTATE_HINT), clock, { signal, output }, async ({ admin }) => {
        output.answer(`${await rotateKeys(admin, node, { timeoutMs: options.timeout, clock, signal, say })}\n`)
      })
    })
}

const ROTATE_HINT =
  'on a site without Kubernetes put the annotation sealane.io/rotate-keys on the Node among its objects, with the time'

const DRAIN_HINT = 'on a site without Kubernetes put the label sealane.io/drain on the Node among its objects'

function clusterOf(command: Command, context: CommandContext, hint = DRAIN_HINT): KubeTarget {
  const target = targetToChange(command, context)
  if (target !== undefined) return target
  throw new UserError(`${command.name()}: expected --context, --kubeconfig or KUBECONFIG`, { exitCode: 2, hint })
}

function nodeName(text: string): string {
  if (!isDnsSubdomain(text)) throw new UserError(`node ${quoted(text)}: expected the name of a Node`, { exitCode: 2 })
  return text
}
