/**
 * Removes the parts of a member, the broker and the CRDs. Ignores objects that do not exist, and does not touch objects
 * of other owners.
 */
import { ALL_CRDS, OWN_CRDS, TOPOLOGY } from '../../../install/crds/crds.ts'
import { planBroker, planMember } from '../../../install/install.ts'
import { DEFAULT_VALUES, type InstallValues, type ManifestObject, objectName } from '../../../install/values/values.ts'
import { ClusterApiError } from '../../../kubeapi/kubeapi.ts'
import { type ObjectRef, refOf, titleOf } from '../../../kubeapi/kube/kube.ts'
import {
  ANNOTATION_CHOSEN_BY,
  ANNOTATION_LISTEN_PORT,
  ANNOTATION_PUBLIC_ADDRESS,
  ANNOTATION_PUBLIC_PORT,
  LABEL_GATEWAY,
} from '../../../model/lanes/lanes.ts'
import {
  APP_MANAGED_BY_SEALANE,
  type ClusterProperty,
  LABELLED_BY_JOIN,
  LABEL_APP_MANAGED_BY,
  LABEL_VIRTUAL_NODE,
} from '../../../model/model.ts'
import { ownProperties } from '../../../model/services/services.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { UserError } from '../../../runtime/runtime.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { type Discovery, advice } from '../../discovery/discovery.ts'
import { PREFER_LOCAL_REF, isFromJoin, isPreferLocal } from '../prefer-local.ts'
import {
  type Missing,
  type Probe,
  type Right,
  applyRights,
  conditionsOf,
  departureRights,
  removalRights,
  selectorText,
  waitUntil,
} from '../../installation/installation.ts'

const OURS = 'sealane.io/v1alpha1'
const CRD = { apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition' } as const
const OUR_LABEL = `${LABEL_APP_MANAGED_BY}=${APP_MANAGED_BY_SEALANE}`

/** Values with every optional object, because it is not known with which values this installation was made. */
const ALL_VALUES: InstallValues = {
  ...DEFAULT_VALUES,
  platform: { ...DEFAULT_VALUES.platform, openshift: true },
  gateway: { ...DEFAULT_VALUES.gateway, statusListen: 'node' },
  routeagent: { ...DEFAULT_VALUES.routeagent, statusListen: 'node' },
  member: { ...DEFAULT_VALUES.member, criticalPodsQuota: true },
  console: { ...DEFAULT_VALUES.console, enabled: true },
  broker: { ...DEFAULT_VALUES.broker, topologyFrom: 'object' },
  metrics: { ...DEFAULT_VALUES.metrics, podMonitors: { ...DEFAULT_VALUES.metrics.podMonitors, enabled: true } },
}

/**
 * The rights that removeInstallation() needs, and the steps before it. With `force`, parts that cannot clean up are
 * applied again. Kinds that the server does not know have no objects to remove.
 */
export async function leaveRights(
  admin: Pick<ClusterAdmin, 'knows'>,
  discovery: Discovery,
  { force, signal }: Pick<LeaveClusterInit, 'force' | 'signal'>,
): Promise<readonly Right[]> {
  const { namespace } = DEFAULT_VALUES.member
  const objects = memberObjects()
  const pools = advice(discovery).flatMap((one) => one.objects) as ManifestObject[]
  const known: ManifestObject[] = []
  for (const object of [...objects, ...pools]) if (await admin.knows(object, signal)) known.push(object)
  return [
    ...removalRights(known),
    ...departureRights(namespace),
    ...(force ? applyRights(objects.filter(({ kind }) => kind === 'DaemonSet')) : []),
  ]
}

function memberObjects(): readonly ManifestObject[] {
  return planMember(ALL_VALUES).flatMap((part) => part.objects)
}

/** Removes all objects of a member except the CRDs. Waits until the namespace is gone. */
export async function removeInstallation(
  admin: ClusterAdmin,
  discovery: Discovery,
  init: LeaveClusterInit,
): Promise<void> {
  const { signal } = init
  await removePools(admin, discovery, init)
  await removeObjects(admin, memberObjects(), init)
  for (const kind of ['Gateway', 'RouteAgent', 'Endpoint', 'Cluster', 'Membership']) {
    for (const object of await admin.list(OURS, kind, {}, signal)) {
      await removeOne(admin, { apiVersion: OURS, kind, name: object.metadata.name }, init)
    }
  }
  await removeMirrored(admin, init)
  await removeProperties(admin, init)
  await removePolicy(admin, init)
  for (const node of await admin.list('v1', 'Node', { labelSelector: LABEL_GATEWAY }, signal)) {
    const annotations = { ...NO_CALLS, [ANNOTATION_CHOSEN_BY]: null }
    const none = { labels: { [LABEL_GATEWAY]: null }, annotations }
    await mergeNode(admin, node, none, signal)
  }
  for (const node of await admin.list('v1', 'Node', { labelSelector: VIRTUAL_BY_JOIN }, signal)) {
    const none = { labels: { [LABEL_VIRTUAL_NODE]: null } }
    await mergeNode(admin, node, none, signal)
  }
  await gone(admin, { apiVersion: 'v1', kind: 'Namespace', name: DEFAULT_VALUES.member.namespace }, init)
}

/** A node that is gone in the meantime has nothing left to remove. */
async function mergeNode(
  admin: ClusterAdmin,
  { metadata: { name } }: ManifestObject,
  metadata: unknown,
  signal: AbortSignal,
): Promise<void> {
  try {
    await admin.merge({ apiVersion: 'v1', kind: 'Node', name }, { metadata }, signal)
  } catch (error) {
    if (!(error instanceof ClusterApiError) || error.code !== 'NotFound') throw error
  }
}

/** Selects the nodes that a join labelled. A user's label has another value, and stays. */
const VIRTUAL_BY_JOIN = `${LABEL_VIRTUAL_NODE}=${LABELLED_BY_JOIN}`

/** Removes what was stated about calls to a gateway. */
const NO_CALLS = {
  [ANNOTATION_PUBLIC_ADDRESS]: null,
  [ANNOTATION_PUBLIC_PORT]: null,
  [ANNOTATION_LISTEN_PORT]: null,
} as const

/**
 * The broker's data, and its address, which members know. They stay for the next deploy unless the user asks for their
 * removal.
 */
const KEPT: ReadonlySet<string> = new Set(['Namespace', 'PersistentVolumeClaim', 'Service'])

/** The form with a volume of its own, and the form with replicas and an etcd. */
function bothForms(): readonly InstallValues[] {
  const { broker, etcd } = ALL_VALUES
  return [{ ...ALL_VALUES, broker: { ...broker, store: 'etcd' }, etcd: { ...etcd, enabled: true } }, ALL_VALUES]
}

/**
 * Waits until the broker's pod is gone; with `deleteData` until its namespace is gone. The volume is deleted if its
 * StorageClass says so. False if there was nothing to remove.
 */
export async function removeBroker(
  admin: ClusterAdmin,
  { deleteData }: { readonly deleteData: boolean },
  init: LeaveClusterInit,
): Promise<boolean> {
  const name = DEFAULT_VALUES.broker.namespace
  const namespace = { apiVersion: 'v1', kind: 'Namespace', name }
  if ((await admin.get(namespace, init.signal)) === undefined) return false
  const objects = bothForms().flatMap((values) => planBroker(values).flatMap((part) => part.objects))
  const going = objects.filter(({ kind }) => deleteData || !KEPT.has(kind))
  const removed = await removeObjects(admin, going, init)
  if (deleteData) {
    await gone(admin, namespace, init)
    return true
  }
  const labelSelector = selectorText('broker')
  await step(init, 'the broker to stop', async () => {
    const [pod] = await admin.list('v1', 'Pod', { namespace: name, labelSelector }, init.signal)
    return pod === undefined ? undefined : { what: titleOf(refOf(pod)) }
  })
  return removed
}

/** Only a broker that follows objects has a role in the whole cluster. */
const FOLLOWS_TOPOLOGY: ObjectRef = {
  apiVersion: 'rbac.authorization.k8s.io/v1',
  kind: 'ClusterRoleBinding',
  name: objectName('broker'),
}

/**
 * Removes the CRDs. CRDs that other projects may use stay if objects of their kind exist, and that of Topology also if a
 * broker in this cluster follows its objects. Waits until the rest is gone, and returns the names of the CRDs that are
 * left.
 */
export async function removeCrds(admin: ClusterAdmin, init: LeaveClusterInit): Promise<readonly string[]> {
  // A broker in this cluster may follow its objects, also when the cluster is no member any more.
  const isFollowed = (await admin.get(FOLLOWS_TOPOLOGY, init.signal)) !== undefined
  const own = new Set(OWN_CRDS.filter((crd) => crd !== TOPOLOGY).map(({ metadata }) => metadata.name))
  const kept: string[] = []
  const going: ObjectRef[] = []
  for (const { metadata, spec } of ALL_CRDS) {
    const ref = { ...CRD, name: metadata.name }
    const version = spec.versions.find(({ storage }) => storage)?.name ?? ''
    const left = await admin.list(`${spec.group}/${version}`, spec.names.kind, { limit: 1 }, init.signal)
    const isUsed = isFollowed && metadata.name === TOPOLOGY.metadata.name
    if ((left.length > 0 && !own.has(metadata.name)) || isUsed) {
      const why = isUsed ? 'a broker in this cluster follows objects of this kind' : 'objects of this kind exist'
      init.say(`  kept      ${titleOf(ref)}  (${why})\n`)
      kept.push(metadata.name)
    } else {
      await removeOne(admin, ref, init)
      going.push(ref)
    }
  }
  // The server deletes the objects of a CRD first, so its answer does not mean that the CRD is gone.
  const ended = await step(init, 'the CRDs to be deleted', async () => lingering(await present(admin, going, init)))
  const left = ended ? [] : await present(admin, going, init)
  return [...kept, ...left.map(({ metadata }) => metadata.name)]
}

async function present(
  admin: ClusterAdmin,
  refs: readonly ObjectRef[],
  { signal }: LeaveClusterInit,
): Promise<readonly ManifestObject[]> {
  const found = await Promise.all(refs.map((ref) => admin.get(ref, signal)))
  return found.filter((object) => object !== undefined)
}

/** Reports only the Terminating condition; the other conditions do not change during the deletion. */
function lingering(crds: readonly ManifestObject[]): Missing | undefined {
  if (crds.length === 0) return undefined
  const ending = crds.flatMap(conditionsOf).find(({ type, status }) => type === 'Terminating' && status === 'True')
  const names = crds.map(({ metadata }) => metadata.name).join(', ')
  return { what: 'still there', why: ending?.message === undefined ? names : `${names} (${ending.message})` }
}

/**
 * Removes the objects that the advice for the CNI created, and those that the user created with the same label as
 * docs/reference.md describes.
 */
async function removePools(admin: ClusterAdmin, discovery: Discovery, init: LeaveClusterInit): Promise<void> {
  const made = advice(discovery).flatMap(({ objects }) => objects) as ManifestObject[]
  for (const { apiVersion, kind } of made) {
    for (const object of await admin.list(apiVersion, kind, { labelSelector: OUR_LABEL }, init.signal)) {
      await removeOne(admin, refOf({ ...object, apiVersion, kind }), init)
    }
  }
}

/** The agent has already removed them unless it is broken. */
async function removeMirrored(admin: ClusterAdmin, init: LeaveClusterInit): Promise<void> {
  for (const [apiVersion, kind] of [
    ['multicluster.x-k8s.io/v1beta1', 'ServiceImport'],
    ['discovery.k8s.io/v1', 'EndpointSlice'],
  ] as const) {
    for (const object of await admin.list(apiVersion, kind, { labelSelector: OUR_LABEL }, init.signal)) {
      await removeOne(admin, refOf({ ...object, apiVersion, kind }), init)
    }
  }
}

/**
 * Removes the properties that the agent created and keeps those of the user. The server enforces the policies that
 * protect them for some time after their deletion, so this is retried.
 */
async function removeProperties(admin: ClusterAdmin, init: LeaveClusterInit): Promise<void> {
  const type = { apiVersion: 'about.k8s.io/v1beta1', kind: 'ClusterProperty' }
  await step(init, 'the properties of this cluster to be deleted', async () => {
    const found = await admin.list(type.apiVersion, type.kind, { labelSelector: OUR_LABEL }, init.signal)
    const own = ownProperties(found as unknown as readonly ClusterProperty[])
    for (const { name } of own.map(({ metadata }) => metadata)) {
      try {
        await removeOne(admin, { ...type, name }, init)
      } catch (error) {
        if (!(error instanceof ClusterApiError) || error.code === 'Unavailable') throw error
        return { what: name, why: error.message }
      }
    }
    return undefined
  })
}

/** Removes the policy of join --prefer-local. One that a user has edited since then stays, and is named. */
async function removePolicy(admin: ClusterAdmin, init: LeaveClusterInit): Promise<void> {
  const policy = await admin.get(PREFER_LOCAL_REF, init.signal)
  if (policy === undefined || !isFromJoin(policy)) return
  if (isPreferLocal(policy)) await removeOne(admin, PREFER_LOCAL_REF, init)
  else init.say(`  kept      ${titleOf(PREFER_LOCAL_REF)}  (it was edited after the join)\n`)
}

/** Removes objects in reverse order of their creation. True if one of them existed. */
export async function removeObjects(
  admin: Pick<ClusterAdmin, 'remove'>,
  objects: readonly ManifestObject[],
  init: Pick<LeaveClusterInit, 'signal' | 'say'>,
): Promise<boolean> {
  let any = false
  for (const object of [...objects].reverse()) any = (await removeOne(admin, refOf(object), init)) || any
  return any
}

/** True if the object existed. */
async function removeOne(
  admin: Pick<ClusterAdmin, 'remove'>,
  ref: ObjectRef,
  { signal, say }: Pick<LeaveClusterInit, 'signal' | 'say'>,
): Promise<boolean> {
  const removed = await admin.remove(ref, signal)
  if (removed) say(`  removed   ${titleOf(ref)}\n`)
  return removed
}

async function gone(admin: ClusterAdmin, ref: ObjectRef, init: LeaveClusterInit): Promise<void> {
  await step(init, `${titleOf(ref)} to be deleted`, async () => {
    const object = await admin.get(ref, init.signal)
    if (object === undefined) return undefined
    const why = conditionsOf(object).find(({ status, message }) => status === 'True' && message !== undefined)?.message
    return { what: ref.name, why }
  })
}

// The printing and waiting of one step of a leave.

export interface LeaveClusterInit {
  /** Skips steps that do not end in time. */
  readonly force: boolean
  /** The time limit of each step. */
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/** Waits for one step. With --force a step that does not end in time is reported and skipped; then false. */
export async function step(init: LeaveClusterInit, what: string, look: Probe, given?: string): Promise<boolean> {
  const { timeoutMs, clock, signal, say, force } = init
  const hint = given ?? 'fix that and run this command again, or skip this step with --force'
  try {
    await waitUntil(look, { what, timeoutMs, clock, signal, say, hint })
    return true
  } catch (error) {
    if (!force || !(error instanceof UserError)) throw error
    say(`${error.message}; continuing because of --force\n`)
    return false
  }
}
