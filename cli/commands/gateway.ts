/**
 * `sealane gateway drain|undrain|rotate-keys`: moves the traffic away from a gateway before its node is removed, moves
 * it back, and makes new keys.
 */
import { existsSync } from 'node:fs'
import type { Command } from 'commander'
import { isDnsSubdomain } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  type ClusterAdmin,
  type CommandContext,
  type TargetOptions,
  addTargetOptions,
  durationOption,
  parsed,
  quoted,
  shellWord,
  subcommand,
  targetToChange,
} from '../context/context.ts'

interface DrainOptions extends TargetOptions {
  readonly force: boolean
  readonly timeout: number
}

export function addGatewayCommand(program: Command, context: CommandContext): void {
  const gateway = subcommand(
    program,
    'gateway',
    'Drains and undrains gateways of a cluster or site, and rotates their keys.',
    'sealane gateway drain n1 --context c1',
  )
  const drain = subcommand(
    gateway,
    'drain',
    'Moves all traffic away from a gateway, and waits until it carries none.',
    'sealane gateway drain n1 --context c1',
  ).argument('<node>', 'the name of its Node', parsed(nodeName))
  addTargetOptions(drain)
    .option('--force', 'mark it as draining even if it is the only active gateway; it then keeps its traffic', false)
    .addOption(durationOption('--timeout', 'how long to wait', 60_000))
    .action(async (node: string, { force, timeout: timeoutMs }: DrainOptions) => {
      const { drainGateway } = await import('../cluster/drain-gateway.ts')
      await withGateways(drain, context, (gateways) =>
        drainGateway(gateways.admin, node, { ...gateways.words, ...gateways, force, timeoutMs }),
      )
    })
  const undrain = subcommand(
    gateway,
    'undrain',
    'Lets a drained gateway carry traffic again.',
    'sealane gateway undrain n1 --context c1',
  ).argument('<node>', 'the name of its Node', parsed(nodeName))
  addTargetOptions(undrain).action(async (node: string) => {
    const { undrainGateway } = await import('../cluster/drain-gateway.ts')
    await withGateways(undrain, context, (gateways) => undrainGateway(gateways.admin, node, gateways))
  })
  addRotateKeys(gateway, context)
}

interface RotateOptions extends TargetOptions {
  readonly timeout: number
}

function addRotateKeys(gateway: Command, context: CommandContext): void {
  const rotate = subcommand(
    gateway,
    'rotate-keys',
    'Rotates the keys of gateways one after the other, without an interruption of traffic.',
    'sealane gateway rotate-keys n1 --context c1',
  ).argument('[node]', 'the name of its Node (default: all gateways of the cluster or site)', parsed(nodeName))
  addTargetOptions(rotate)
    .addOption(durationOption('--timeout', 'how long to wait', 300_000))
    .action(async (node: string | undefined, { timeout: timeoutMs }: RotateOptions) => {
      const { rotateKeys } = await import('../cluster/rotate-keys.ts')
      await withGateways(rotate, context, (gateways) => rotateKeys(gateways.admin, node, { ...gateways, timeoutMs }))
    })
}

/** The gateways of a cluster, or of a site without Kubernetes. */
interface Gateways {
  readonly admin: Pick<ClusterAdmin, 'get' | 'list' | 'merge'>
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  /** What messages say differently about a site. */
  readonly words: { readonly addGateway?: string; readonly flags?: string }
}

/** Opens the cluster or the site, and prints the text that `work` returns. */
async function withGateways(
  command: Command,
  { signal, output, ...context }: CommandContext,
  work: (gateways: Gateways) => Promise<string>,
): Promise<void> {
  const { SystemClock } = await import('../../reconcile/clock.ts')
  const clock = new SystemClock()
  const all = { clock, signal, say: (text: string): void => output.remark(text) }
  const target = targetToChange(command, { ...context, signal, output })
  if (target !== undefined) {
    const { withAdmin } = await import('../context/with-admin.ts')
    return withAdmin(target, clock, { signal, output }, async ({ admin }) => {
      output.answer(`${await work({ ...all, admin, words: {} })}\n`)
    })
  }
  const { site: file } = command.opts<TargetOptions>()
  if (!existsSync(file)) {
    throw new UserError(`${command.name()}: expected --context, --kubeconfig or KUBECONFIG`, {
      exitCode: 2,
      hint: 'on a site without Kubernetes, name its site file: --site FILE',
    })
  }
  const { withSite } = await import('../context/open-site.ts')
  await withSite(file, { signal, output }, async (site) => {
    const { gatewayAdvice, siteAdmin } = await import('../site/site-admin.ts')
    const words = { addGateway: gatewayAdvice(file), flags: ` --site ${shellWord(file)}` }
    output.answer(`${await work({ ...all, admin: siteAdmin(site), words })}\n`)
  })
}

function nodeName(text: string): string {
  if (!isDnsSubdomain(text)) throw new UserError(`node ${quoted(text)}: expected the name of a Node`, { exitCode: 2 })
  return text
}
