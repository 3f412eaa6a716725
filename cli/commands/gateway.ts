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
    'Drains and undrains gateways of a cluster, and rotates their keys.',
    'sealane gateway drain n1 --context c1',
  )
  const drain = subcommand(
    gateway,
    'drain',
    'Moves all traffic away from a gateway, and waits until it carries none.',
    'sealane gateway drain n1 --context c1',
  ).argument('<node>', 'the name of its Node', parsed(nodeName))
  addKubeOptions(drain)
    .option('--force', 'mark it as draining even if it is the only active gateway; it then keeps its traffic', false)
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
    'Lets a drained gateway carry traffic again.',
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
    'Rotates the keys of gateways one after the other, without an interruption of traffic.',
    'sealane gateway rotate-keys n1 --context c1',
  ).argument('[node]', 'the name of its Node (default: all gateways of the cluster)', parsed(nodeName))
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
  'on a site without Kubernetes, set the annotation sealane.io/rotate-keys of the Node in its objects to the current time'

const DRAIN_HINT = 'on a site without Kubernetes, set the label sealane.io/drain of the Node in its objects'

function clusterOf(command: Command, context: CommandContext, hint = DRAIN_HINT): KubeTarget {
  const target = targetToChange(command, context)
  if (target !== undefined) return target
  throw new UserError(`${command.name()}: expected --context, --kubeconfig or KUBECONFIG`, { exitCode: 2, hint })
}

function nodeName(text: string): string {
  if (!isDnsSubdomain(text)) throw new UserError(`node ${quoted(text)}: expected the name of a Node`, { exitCode: 2 })
  return text
}
