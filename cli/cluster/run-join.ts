/** The command line of joinCluster(): questions at the terminal, the report of the changes, and the next step. */
import { formatYaml } from '../../kubeapi/kubeapi.ts'
import {
  DEFAULT_VALUES,
  IDENTITY_SECRET,
  IDENTITY_SECRET_TYPE,
  type InstallValues,
  objectName,
} from '../../install/values/values.ts'
import type { Exposure } from '../../model/access/access.ts'
import { CLUSTERSET_ZONE, LABEL_VIRTUAL_NODE, MEMBERSHIP_NAME, parseClusterId } from '../../model/model.ts'
import type { BrokerAdmin } from '../../protocol/admin/admin.ts'
import { TOKEN_PART, lookAtJoin } from '../../protocol/membership/membership.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { createLogger } from '../../runtime/logging/logging.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  type ClusterAdmin,
  type CommandContext,
  type KubeTarget,
  type Terminal,
  askAtTerminal,
  lineFromTerminal,
  processTerminal,
  targetFlags,
  withAdmin,
} from '../context/context.ts'
import { type TokenOptions, brokerWorkload, podBroker, readTokenIfGiven, withBroker } from '../broker/broker.ts'
import type { RekeyingBroker } from './identity-secret.ts'
import { markedCrds, nodeMarkText, withImage, withMarks, withStatus } from '../installation/installation.ts'
import {
  type JoinClusterInit,
  type JoinedCluster,
  type PreparedJoin,
  joinCluster,
  prepareJoin,
} from './join-cluster.ts'
import type { JoinKubeOptions } from './join-options.ts'
import type { JoinOptions } from './plan-join.ts'

export type RunJoinOptions = JoinKubeOptions &
  TokenOptions & {
    readonly clusterId?: string
    readonly approvalTimeout?: number
    readonly expose?: Exposure
    readonly preferLocal?: boolean
  }

function askedValues(options: RunJoinOptions): InstallValues {
  const console = { ...DEFAULT_VALUES.console, enabled: options.console === true }
  return withMarks(withStatus(withImage({ ...DEFAULT_VALUES, console }, options), options), options)
}

export async function runJoinKube(target: KubeTarget, options: RunJoinOptions, context: CommandContext): Promise<void> {
  const { signal, output } = context
  const clock = new SystemClock()
  const say = (text: string): void => output.remark(text)
  const init: JoinClusterInit = {
    token: await tokenFor(options, signal),
    chosen: joinOptions(options),
    values: askedValues(options),
    asked: options,
    look: (ask, within) => lookAtJoin(ask, { clock, logger: createLogger('cli', 'warn') }, within),
    dryRun: options.dryRun,
    preferLocal: options.preferLocal,
    confirm: options.yes ? undefined : confirmAt(processTerminal(), signal),
    force: options.force,
    flags: targetFlags(target),
    timeoutMs: options.timeout,
    approvalMs: options.approvalTimeout,
    ask: options.yes || !process.stdin.isTTY ? undefined : (question) => askAtTerminal(question, signal),
    clock,
    signal,
    say,
  }
  await withAdmin(target, clock, { signal, output }, async ({ api, admin }) => {
    const open = { admin, dynamic: api.dynamic }
    if (options.output === 'yaml') {
      print(await prepareJoin(open, init), init, output)
      return
    }
    const rekey = (cluster: string): Promise<RekeyingBroker | undefined> =>
      brokerOf(cluster, { target, options, admin }, context)
    const joined = await joinCluster(open, { ...init, rekey })
    if (options.dryRun) output.answer('nothing was changed\n')
    else reportJoined(joined, target, output)
  })
}

interface RekeyPlace {
  readonly target: KubeTarget
  readonly options: Pick<RunJoinOptions, 'brokerContext' | 'brokerKubeconfig' | 'timeout'>
  readonly admin: ClusterAdmin
}

/**
 * The broker that the user names, else the one in the same cluster. Undefined if there is no broker, or if it does not
 * know this member.
 */
async function brokerOf(
  cluster: string,
  { target, options, admin }: RekeyPlace,
  context: CommandContext,
): Promise<RekeyingBroker | undefined> {
  const { brokerContext, brokerKubeconfig } = options
  const membership = await admin.get(
    { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: MEMBERSHIP_NAME },
    context.signal,
  )
  const clusterset = (membership?.['spec'] as { readonly clusterset?: string } | undefined)?.clusterset
  if (brokerContext !== undefined || brokerKubeconfig !== undefined) {
    const kubeconfig = brokerKubeconfig ?? target.kubeconfig
    const kube = {
      ...(kubeconfig === undefined ? {} : { kubeconfig }),
      ...(brokerContext === undefined ? {} : { context: brokerContext }),
    }
    const place = { kube, state: '', clusterset, timeout: options.timeout }
    const ask: AskBroker = (work) => withBroker(place, context, work)
    const found = await memberAt(cluster, ask)
    if (found !== undefined) return found
    throw new UserError(`the broker of --broker-context has no member ${cluster} in clusterset ${clusterset ?? '-'}`)
  }
  return brokerHere(admin, { cluster, clusterset, flags: targetFlags(target, admin.contextName) }, context.signal)
}

interface BrokerHereInit {
  readonly cluster: string
  readonly clusterset: string | undefined
  readonly flags: string
}

/** The broker in the same cluster, of either form. Undefined as for brokerOf(). */
export async function brokerHere(
  admin: Pick<ClusterAdmin, 'title' | 'get' | 'list' | 'forward'>,
  { cluster, clusterset, flags }: BrokerHereInit,
  signal: AbortSignal,
): Promise<RekeyingBroker | undefined> {
  const { statefulSet, deployment } = await brokerWorkload(admin, DEFAULT_VALUES.broker.namespace, signal)
  if ((statefulSet ?? deployment) === undefined) return undefined
  const here = podBroker(admin, { flags, clusterset, signal })
  try {
    return await memberAt(cluster, (work) => work(here))
  } catch (error) {
    // The broker in this cluster does not serve the clusterset that this cluster is a member of.
    if (error instanceof UserError) return undefined
    throw error
  }
}

type AskBroker = <T>(work: (broker: BrokerAdmin) => Promise<T>) => Promise<T>

async function memberAt(cluster: string, ask: AskBroker): Promise<RekeyingBroker | undefined> {
  const all = await ask((broker) => broker.members())
  const found = all.find(({ id, state }) => id === cluster && (state === 'in contact' || state === 'silent'))
  if (found === undefined) return undefined
  const rekey = async (): Promise<string> => (await ask((broker) => broker.rekey({ cluster }))).text
  return { inContact: found.state === 'in contact', rekey }
}

/** Asks for confirmation at the terminal, as `leave` does. Undefined if there is no terminal. */
function confirmAt(terminal: Terminal | undefined, signal: AbortSignal): JoinClusterInit['confirm'] {
  if (terminal === undefined) return undefined
  return async (question) => {
    const said = await lineFromTerminal(`${question}? Type yes: `, signal, terminal)
    return said.trim().toLowerCase() === 'yes'
  }
}

/**
 * The given token. Undefined if there is none: neither a member that joins again nor a preview needs a token. Whether
 * the cluster is a member is known only after reading it.
 */
async function tokenFor(options: RunJoinOptions, signal: AbortSignal): Promise<string | undefined> {
  if (options.output === 'yaml') return undefined
  return readTokenIfGiven(options, { env: process.env, stdin: process.stdin, signal })
}

/** Prints all objects that would be applied, and the steps that a file cannot contain. */
function print(prepared: PreparedJoin, { values, say }: JoinClusterInit, output: CommandContext['output']): void {
  const { plan, made, discovery } = prepared
  const objects = [...markedCrds(plan.values.common.objects), ...plan.objects, ...made]
  output.answer(objects.map((object) => formatYaml(object)).join('---\n'))
  const { namespace } = values.member
  const create = `kubectl --namespace ${namespace} create secret generic ${IDENTITY_SECRET} --type=${IDENTITY_SECRET_TYPE}`
  say('these steps are not in the files:\n')
  say(`  the token: ${create} --from-file=${TOKEN_PART}=FILE\n`)
  for (const { node, labels, annotations } of plan.nodes) {
    for (const pair of Object.entries(labels))
      say(
        `  ${pair[0] === LABEL_VIRTUAL_NODE ? 'a virtual node' : 'a gateway'}: kubectl label node ${node} ${nodeMarkText(pair)}\n`,
      )
    for (const pair of Object.entries(annotations))
      say(`  its address: kubectl annotate node ${node} ${nodeMarkText(pair)}\n`)
  }
  const { value } = discovery.dns.flavour
  say(`  cluster DNS (${value}): forward names below ${CLUSTERSET_ZONE} to Service ${namespace}/${objectName('dns')}\n`)
}

function joinOptions(options: RunJoinOptions): JoinOptions {
  const { clusterId, podCidr, serviceCidr, allowNamespace, gateway = [], gateways, label = [], overlayPort } = options
  const { expose } = options
  return {
    labels: Object.fromEntries(label),
    gateways: gateway,
    ...(options.relay ? { relay: true } : {}),
    ...(gateways === undefined ? {} : { activeGateways: gateways }),
    ...(clusterId === undefined ? {} : { clusterId: parseClusterId(clusterId, '--cluster-id') }),
    ...(allowNamespace === undefined ? {} : { allowedNamespaces: allowNamespace }),
    ...(overlayPort === undefined ? {} : { overlayPort }),
    ...(expose === undefined ? {} : { exposure: expose }),
    ...(podCidr === undefined ? {} : { podCIDRs: podCidr }),
    ...(serviceCidr === undefined ? {} : { serviceCIDRs: serviceCidr }),
  }
}

function reportJoined(joined: JoinedCluster, target: KubeTarget, output: CommandContext['output']): void {
  const { plan, advice, dns } = joined
  const { reached: others, alone } = joined.others
  const reached =
    others.length > 0
      ? `it reaches ${others.join(', ')}`
      : alone
        ? 'it is the first member'
        : 'no other member is in contact'
  output.answer(
    `${plan.clusterId} has joined with gateway ${plan.gateways.map(({ node }) => node).join(', ')}; ${reached}\n`,
  )
  for (const { commands } of advice) for (const command of commands) output.remark(`to do: ${command}\n`)
  for (const line of dns.left) output.remark(`cluster DNS: ${line}\n`)
  const next =
    others.length === 0
      ? 'join another cluster: sealane token create on the broker, then sealane join'
      : `sealane export SERVICE --namespace NAMESPACE ${targetFlags(target)}`
  output.remark(`next: ${next}\n`)
  if (others.length > 0) output.remark(`then, in ${others.join(', ')}: SERVICE.NAMESPACE.svc.${CLUSTERSET_ZONE}\n`)
}
