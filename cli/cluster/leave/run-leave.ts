/**
 * The command lines of `sealane leave` and `sealane uninstall`: lists what is removed and asks for confirmation before
 * removing it.
 */
import {
  BROKER_CLAIM,
  DEFAULT_VALUES,
  ETCD_VOLUME,
  type ManifestObject,
  etcdMembers,
  includedEtcdUrl,
} from '../../../install/values/values.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY, MEMBERSHIP_NAME } from '../../../model/model.ts'
import { SystemClock } from '../../../reconcile/reconcile.ts'
import { UserError, messageOf } from '../../../runtime/runtime.ts'
import { brokerWorkload, podBroker, storeUrlOf } from '../../broker/broker.ts'
import {
  type ClusterAdmin,
  type CommandContext,
  type KubeTarget,
  confirm,
  targetFlags,
  withAdmin,
  withinTime,
} from '../../context/context.ts'
import {
  type Discovery,
  type EarlierInstall,
  discover,
  readSnapshot,
  snapshotReader,
} from '../../discovery/discovery.ts'
import { PREFER_LOCAL_REF, isPreferLocal } from '../prefer-local.ts'
import { leaveCluster } from './leave-cluster.ts'
import {
  type BrokerFacts,
  type RemovalFacts,
  type RemovalOptions,
  type RemovalPlan,
  claimsText,
  givenText,
  planRemoval,
} from './plan-removal.ts'
import { type LeaveClusterInit, removeBroker, removeCrds } from './remove-installation.ts'

interface ReadRemovalInit {
  readonly flags: string
  readonly earlier: Pick<EarlierInstall, 'parts'>
  /** Whether the broker is asked for its members. */
  readonly askBroker: boolean
  readonly signal: AbortSignal
}

const OURS = 'sealane.io/v1alpha1'
const MCS = 'multicluster.x-k8s.io/v1beta1'
const MANAGED = { labelSelector: `${LABEL_APP_MANAGED_BY}=${APP_MANAGED_BY_SEALANE}` }
/** The time limit for the broker's answer. A broker that hangs must not block its own removal. */
const ASK_MS = 15_000

interface MembershipSpec {
  readonly clusterId?: string
  readonly clusterset?: string
  readonly phase?: string
}

/** Reads what leave and uninstall would remove from a cluster. */
async function readRemoval(admin: ClusterAdmin, init: ReadRemovalInit): Promise<RemovalFacts> {
  const { flags, earlier, signal } = init
  const membership = await admin.get({ apiVersion: OURS, kind: 'Membership', name: MEMBERSHIP_NAME }, signal)
  const spec = membership?.['spec'] as MembershipSpec | undefined
  const [clusters, gateways, agents, exports, imports, policy] = await Promise.all([
    admin.list(OURS, 'Cluster', {}, signal),
    admin.list(OURS, 'Gateway', {}, signal),
    admin.list(OURS, 'RouteAgent', {}, signal),
    admin.list(MCS, 'ServiceExport', {}, signal),
    admin.list(MCS, 'ServiceImport', MANAGED, signal),
    admin.get(PREFER_LOCAL_REF, signal),
  ])
  const id = spec?.clusterId
  return {
    title: admin.title,
    flags,
    site: false,
    member:
      id === undefined ? undefined : { id, clusterset: spec?.clusterset ?? '', leaving: spec?.phase === 'leaving' },
    // The Membership is listed by the id of the member instead.
    parts: earlier.parts.filter((part) => !part.startsWith('Membership ')),
    others: names(clusters).filter((name) => name !== id),
    exports:
      id === undefined ? [] : exports.map(({ metadata: { namespace = '', name } }) => `${namespace}/${name}`).sort(),
    imports: imports.length,
    nodes: [...new Set([...names(gateways), ...names(agents)])].sort(),
    hasPolicy: policy !== undefined && isPreferLocal(policy),
    broker: await readBroker(admin, init),
  }
}

function names(objects: readonly ManifestObject[]): readonly string[] {
  return objects.map(({ metadata }) => metadata.name).sort()
}

async function readBroker(
  admin: ClusterAdmin,
  { flags, askBroker, signal }: ReadRemovalInit,
): Promise<BrokerFacts | undefined> {
  const { namespace } = DEFAULT_VALUES.broker
  const there = await admin.get({ apiVersion: 'v1', kind: 'Namespace', name: namespace }, signal)
  if (there === undefined) return undefined
  const claims = await admin.list('v1', 'PersistentVolumeClaim', { namespace }, signal)
  const { statefulSet, deployment } = await brokerWorkload(admin, namespace, signal)
  const installed = askBroker && (statefulSet ?? deployment) !== undefined
  const url = statefulSet === undefined ? storeUrlOf(deployment) : undefined
  return {
    members: installed ? await membersOf(admin, flags, signal) : undefined,
    claims: names(claims).filter(isData),
    ...(url === undefined || url === includedEtcdUrl(namespace) ? {} : { etcd: url }),
  }
}

/** Other PersistentVolumeClaims in that namespace do not belong to Sealane. */
function isData(claim: string): boolean {
  return claim === BROKER_CLAIM || etcdMembers().some((member) => claim === `${ETCD_VOLUME}-${member}`)
}

async function membersOf(admin: ClusterAdmin, flags: string, signal: AbortSignal): Promise<BrokerFacts['members']> {
  try {
    return await withinTime(signal, ASK_MS, async (limited) => {
      const broker = podBroker(admin, { flags, signal: limited })
      const others = (await broker.clustersets()).filter(({ state, members }) => state === 'listed' && members !== 0)
      // Members of other clustersets are neither listed nor evicted together with those of the broker's own clusterset.
      if (others.length > 0)
        return { unknown: `it serves other clustersets: ${others.map(({ name }) => name).join(', ')}` }
      return broker.members()
    })
  } catch (error) {
    signal.throwIfAborted()
    return { unknown: messageOf(error) }
  }
}

export type RunLeaveOptions = Pick<LeaveClusterInit, 'force' | 'timeoutMs'> & { readonly yes: boolean }

export interface RunUninstallOptions extends RunLeaveOptions {
  readonly crds: boolean
  readonly deleteData: boolean
  readonly evictMembers: boolean
}

/** One removal in progress. */
interface Removal {
  readonly admin: ClusterAdmin
  readonly discovery: Discovery
  readonly facts: RemovalFacts
  readonly plan: RemovalPlan
  readonly init: LeaveClusterInit
}

export async function runLeaveKube(
  target: KubeTarget,
  options: RunLeaveOptions,
  context: CommandContext,
): Promise<void> {
  const chosen = { verb: 'leave', crds: false, deleteData: false, evictMembers: false, force: options.force } as const
  await withRemoval(target, { ...options, chosen }, context, async (removal) => {
    const { admin, discovery, facts, plan, init } = removal
    if (plan.lines.length === 0 && !options.force) throw nothingToLeave(facts)
    await agree(removal, options, context)
    const id = await leaveCluster(admin, discovery, init)
    context.output.answer(
      id === undefined ? 'Sealane is removed\n' : `${id} has left the clusterset; Sealane is removed\n`,
    )
  })
}

function nothingToLeave({ title, broker, flags }: RemovalFacts): UserError {
  const hint = broker === undefined ? {} : { hint: `there is a broker; to remove it: sealane uninstall ${flags}` }
  return new UserError(`${title}: Sealane is not installed`, hint)
}

/** Removes everything of Sealane from one cluster, the broker included. */
export async function runUninstall(
  target: KubeTarget,
  options: RunUninstallOptions,
  context: CommandContext,
): Promise<void> {
  const { crds, deleteData, evictMembers, force } = options
  const chosen = { verb: 'uninstall', crds, deleteData, evictMembers, force } as const
  await withRemoval(target, { ...options, chosen }, context, async (removal) => {
    const { admin, discovery, facts, init } = removal
    await agree(removal, options, context)
    // A cluster that is not a member is no error here: the rest of Sealane is still removed.
    const id = await leaveCluster(admin, discovery, init, { absentIsFine: true })
    await evict(removal)
    const broker = await removeBroker(admin, { deleteData }, init)
    const kept = crds ? await removeCrds(admin, init) : []
    const parts = [
      ...(id === undefined ? [] : [`${id} has left the clusterset`]),
      ...(broker ? ['the broker was removed'] : []),
      ...dataLeft(facts, deleteData),
    ]
    const said = parts.length === 0 ? ['Sealane was not installed'] : parts
    context.output.answer(`${[...said, crdsLeft(crds, kept)].join('; ')}\n`)
  })
}

function dataLeft({ broker }: RemovalFacts, deleteData: boolean): readonly string[] {
  const { claims = [], etcd } = broker ?? {}
  const [stays, stay] = [`the broker's data is kept in ${claimsText(claims)} (--delete-data)`, claims.length > 0]
  return [...(stay && !deleteData ? [stays] : []), ...(etcd === undefined ? [] : [`kept: ${givenText(etcd)}`])]
}

async function withRemoval(
  target: KubeTarget,
  options: RunLeaveOptions & { readonly chosen: RemovalOptions },
  context: CommandContext,
  work: (removal: Removal) => Promise<void>,
): Promise<void> {
  const { force, timeoutMs, chosen } = options
  const { signal, output } = context
  const init = { force, timeoutMs, clock: new SystemClock(), signal, say: (text: string) => output.remark(text) }
  await withAdmin(target, init.clock, context, async ({ admin, api }) => {
    const discovery = discover(await readSnapshot(snapshotReader(api.dynamic), signal))
    const flags = targetFlags(target, admin.contextName)
    const facts = await readRemoval(admin, {
      flags,
      earlier: discovery.earlier,
      askBroker: chosen.verb === 'uninstall',
      signal,
    })
    await work({ admin, discovery, facts, plan: planRemoval(facts, chosen), init })
  })
}

/** Prints what is removed. Throws UserError if the removal is refused, or if the user does not confirm it. */
async function agree({ plan }: Removal, { yes }: RunLeaveOptions, context: CommandContext): Promise<void> {
  if (plan.lines.length === 0) return
  context.output.remark(`${plan.lines.join('\n')}\n`)
  if (plan.refusal !== undefined) throw new UserError(plan.refusal.message, { hint: plan.refusal.hint })
  await confirm({ what: 'Remove it', yes, command: plan.command }, context)
}

/**
 * A cluster is informed of its eviction within a second, which is the broker's poll interval, while its broker still
 * runs.
 */
const HEARD_MS = 1500

async function evict({ admin, facts, plan, init }: Removal): Promise<void> {
  const { clock, signal, say } = init
  if (plan.evicts.length === 0) return
  const broker = podBroker(admin, { flags: facts.flags, signal })
  for (const cluster of plan.evicts) {
    await broker.evict({ cluster, force: true })
    say(`  evicted   ${cluster}\n`)
  }
  await clock.sleep(HEARD_MS, signal)
}

function crdsLeft(asked: boolean, kept: readonly string[]): string {
  if (!asked) return 'the CRDs are kept (--crds)'
  return kept.length === 0 ? 'the CRDs were removed' : `the CRDs were removed, except ${kept.join(', ')}`
}
