/** Options of `sealane join` for real clusters. */
import type { Command } from 'commander'
import { InvalidNameError, VXLAN_PORT, isDnsSubdomain, parseDnsLabel } from '../../model/model.ts'
import {
  DEFAULT_ACTIVE_GATEWAYS,
  MAX_LANE,
  firstPortProblem,
  overlayPortProblem,
  parsePort,
  publicAddressProblem,
} from '../../model/lanes/lanes.ts'
import { formatPrefix, parsePrefix } from '../../model/addresses/addresses.ts'
import { UserError } from '../../runtime/runtime.ts'
import { choiceOption, collect, durationOption, quoted } from '../context/context.ts'
import type { GatewayOption } from './plan-gateways.ts'
import {
  type ImageOptions,
  type MarkOptions,
  type StatusOptions,
  addImageOptions,
  addMarkOptions,
  addStatusOptions,
} from '../installation/installation.ts'

export interface JoinKubeOptions extends ImageOptions, StatusOptions, MarkOptions {
  readonly podCidr?: readonly string[]
  readonly serviceCidr?: readonly string[]
  readonly gateway?: readonly GatewayOption[]
  readonly gateways?: number
  readonly relay: boolean
  readonly console?: boolean
  readonly label?: readonly (readonly [string, string | null])[]
  readonly allowNamespace?: readonly string[]
  readonly overlayPort?: number
  readonly brokerKubeconfig?: string
  readonly brokerContext?: string
  readonly yes: boolean
  readonly force: boolean
  readonly dryRun: boolean
  readonly output?: 'yaml'
  readonly timeout: number
}

export function addJoinKubeOptions(command: Command): Command {
  addMarkOptions(
    addStatusOptions(addImageOptions(command)),
    ['agent', 'dns', 'gateway', 'routeagent', 'console'],
    'with --context: ',
  )
    .option(
      '--pod-cidr <cidr>',
      'with --context: a range of pod addresses, IPv4 or IPv6, instead of the detected ones; may be given several times',
      collect(cidr('--pod-cidr')),
    )
    .option(
      '--service-cidr <cidr>',
      'with --context: a range of Services, instead of the detected ones; may be given several times',
      collect(cidr('--service-cidr')),
    )
    .option(
      '--gateway <node[=address[:port]]>',
      `with --context: a node to use as a gateway, the address or DNS name at which other clusters reach it, and the first of the ${MAX_LANE + 1} UDP ports that lead to it there; may be given several times`,
      collect(parseGateway),
    )
    .option(
      '--gateways <count>',
      `with --context: how many gateways are active at once, 1 to ${MAX_LANE + 1} (default: as installed, else ${DEFAULT_ACTIVE_GATEWAYS})`,
      parseGatewayCount,
    )
    .option(
      '--relay',
      'with --context: let the gateways relay, encrypted end to end, between members that cannot reach each other; they must be reachable at UDP 4600 to 4799',
      false,
    )
    .option(
      '--console',
      'with --context: also install the console, for readers with the rights of Role sealane-console-reader; it stays at later joins',
    )
    .option('--no-console', 'with --context: remove the console that an earlier join has installed')
    .option(
      '--label <key=value>',
      'with --context: a label of this cluster, such as region=eu; region- removes it; may be given several times',
      collect(parseLabel),
    )
    .option(
      '--allow-namespace <name>',
      'with --context: also export and import services of this guarded namespace, such as default or kube-*; may be given several times',
      collect((text: string) => parseDnsLabel(text, '--allow-namespace')),
    )
    .option(
      '--overlay-port <port>',
      `with --context: the UDP port of the overlay between the nodes of this cluster (default: as installed, else ${VXLAN_PORT}); a change interrupts calls to other clusters until all routeagents have restarted`,
      parseOverlayPort,
    )
    .option(
      '--broker-context <name>',
      "with --context: the context of the broker's cluster, which issues a new identity to a member that has lost its own",
    )
    .option(
      '--broker-kubeconfig <file>',
      "with --broker-context: the kubeconfig of the broker's cluster (default: that of this cluster)",
    )
    .option('--yes', 'with --context: do not ask for confirmation', false)
    .option('--force', 'with --context: join even if something is known not to work', false)
    .option('--dry-run', 'with --context: show the changes without making them', false)
    .addOption(
      choiceOption('-o, --output <format>', 'with --context: print what would be applied, for GitOps', ['yaml']),
    )
    .addOption(durationOption('--timeout', 'with --context: how long to wait for each step', 120_000))
  return command
}

const cidr =
  (flag: string) =>
  (text: string): string =>
    formatPrefix(parsePrefix(text, flag))

function parseGateway(text: string): GatewayOption {
  const at = text.indexOf('=')
  const node = at < 0 ? text : text.slice(0, at)
  if (!isDnsSubdomain(node)) throw new InvalidNameError('--gateway', node, 'the name of a Node')
  if (at < 0) return { node }
  const [, publicAddress = '', port] = /^(.*?)(?::(\d+))?$/su.exec(text.slice(at + 1)) ?? []
  const refuse = (value: string, problem: string | undefined): void => {
    if (problem !== undefined) throw new UserError(`--gateway ${quoted(value)}: ${problem}`, { exitCode: 2 })
  }
  refuse(publicAddress, publicAddressProblem(publicAddress))
  if (port === undefined) return { node, publicAddress }
  const publicPort = parsePort(port)
  refuse(port, firstPortProblem(publicPort, 'public'))
  return { node, publicAddress, publicPort }
}

function parseGatewayCount(text: string): number {
  const count = Number(text)
  if (/^\d+$/.test(text) && count >= 1 && count <= MAX_LANE + 1) return count
  throw new UserError(`--gateways ${quoted(text)}: expected a whole number from 1 to ${MAX_LANE + 1}`, { exitCode: 2 })
}

function parseOverlayPort(text: string): number {
  const port = parsePort(text)
  const problem = overlayPortProblem(port)
  if (problem !== undefined) throw new UserError(`--overlay-port ${quoted(text)}: ${problem}`, { exitCode: 2 })
  return port
}

function parseLabel(text: string): readonly [string, string | null] {
  const at = text.indexOf('=')
  if (at < 0 && text.length > 1 && text.endsWith('-')) return [text.slice(0, -1), null]
  if (at < 1) throw new UserError(`--label ${quoted(text)}: expected key=value, or key- to remove one`)
  return [text.slice(0, at), text.slice(at + 1)]
}

/** The option names as commander spells them. */
const KUBE_ONLY = [
  'image',
  'imagePullPolicy',
  'imagePullSecret',
  'statusListen',
  'proxySecret',
  'objectLabel',
  'objectAnnotation',
  'podLabel',
  'podAnnotation',
  'resources',
  'podCidr',
  'serviceCidr',
  'gateway',
  'gateways',
  'relay',
  'console',
  'label',
  'allowNamespace',
  'overlayPort',
  'brokerContext',
  'brokerKubeconfig',
  'yes',
  'force',
  'dryRun',
  'output',
  'timeout',
] as const satisfies readonly (keyof JoinKubeOptions)[]

/** Throws UserError for a flag that has no effect on a site file. Otherwise `--dry-run` would join after all. */
export function refuseKubeOptions(command: Command): void {
  const given = KUBE_ONLY.find((name) => command.getOptionValueSource(name) === 'cli')
  const flag = command.options.find((option) => option.attributeName() === given)?.long
  if (flag === undefined) return
  throw new UserError(`${flag}: only for a Kubernetes cluster, with --context or --kubeconfig`, { exitCode: 2 })
}
