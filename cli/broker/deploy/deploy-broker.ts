/** `sealane broker deploy`: installs the broker in a hub cluster, under an address that members can reach. */
import { TOPOLOGY } from '../../../install/crds/crds.ts'
import { planBroker } from '../../../install/install.ts'
import {
  BROKER_PORT,
  DEFAULT_VALUES,
  ETCD_CLIENT_SECRET,
  ETCD_SERVER_SECRET,
  type InstallValues,
  type ManifestObject,
  type ServiceType,
  formOf,
  marked,
  objectName,
} from '../../../install/values/values.ts'
import { refOf, titleOf } from '../../../kubeapi/kube/kube.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { UserError, formatHostPort } from '../../../runtime/runtime.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import {
  type Change,
  type Right,
  type SecretMarkChange,
  type WaitInit,
  applyCrd,
  applyObjects,
  applySecretMarks,
  brokerRights,
  checkRights,
  hasSecurityContextConstraints,
  listOf,
  planSecretMarks,
  removalRights,
  requireAdmission,
  topologyRights,
  waitUntil,
} from '../../installation/installation.ts'
import { requirePlace } from './broker-place.ts'
import { brokerProgress } from './broker-rollout.ts'
import { type BrokerOptions, withOptions } from './deploy-options.ts'
import { ETCD_CA_SECRET, etcdSecrets, requireEtcdLogin } from './etcd-secrets.ts'
import {
  type InstalledBroker,
  changedValues,
  hasState,
  installedBroker,
  isInstalled,
  keepInstalled,
  unknownArgs,
  withThisRelease,
} from './installed-broker.ts'
import { moveBroker, moveRights, refuseMove } from './move-broker.ts'
import { isBound } from './plan-broker-place.ts'
import { canMove } from './plan-move.ts'

// Determines the addresses at which members reach a broker in a cluster, from its Service and the Nodes.

/** A NodePort is open on all nodes. Tokens contain the addresses of some of them, so that a node may be removed. */
const MAX_NODES = 3

const SAY_ADVERTISE = 'use --advertise HOST:PORT or --service-type NodePort'

/**
 * Any node's address works for a NodePort. For a load balancer this waits until it has an address. Throws UserError.
 */
async function findAddress(
  admin: Pick<ClusterAdmin, 'get' | 'list'>,
  values: InstallValues,
  init: Omit<WaitInit, 'what' | 'hint'>,
): Promise<readonly string[]> {
  const { signal } = init
  const type = values.broker.service.type as ServiceType
  const service = { apiVersion: 'v1', kind: 'Service', name: objectName('broker'), namespace: values.broker.namespace }
  if (type === 'ClusterIP') return [`${service.name}.${service.namespace}.svc:${BROKER_PORT}`]
  if (type === 'NodePort') {
    const port = ((await admin.get(service, signal))?.['spec'] as ServiceSpec | undefined)?.ports?.[0]?.nodePort
    const hosts = nodeAddresses(await admin.list('v1', 'Node', {}, signal))
    if (port === undefined || hosts.length === 0) {
      throw new UserError('no node of this cluster has an address at which members can reach the broker', {
        hint: 'use --advertise HOST:PORT',
      })
    }
    return hosts.slice(0, MAX_NODES).map((host) => formatHostPort({ host, port }))
  }
  let address: string | undefined
  const look = async () => {
    const status = (await admin.get(service, signal))?.['status'] as ServiceStatus | undefined
    const ingress = status?.loadBalancer?.ingress?.[0]
    address = ingress?.ip ?? ingress?.hostname
    return address === undefined
      ? { what: `Service ${service.namespace}/${service.name} has no address yet` }
      : undefined
  }
  await waitUntil(look, { ...init, what: 'an address from the load balancer', hint: SAY_ADVERTISE })
  return [formatHostPort({ host: address ?? '', port: BROKER_PORT })]
}

interface ServiceSpec {
  readonly ports?: readonly { readonly nodePort?: number }[]
}
interface ServiceStatus {
  readonly loadBalancer?: { readonly ingress?: readonly { readonly ip?: string; readonly hostname?: string }[] }
}

/** The ExternalIPs of the nodes if there are any, else their InternalIPs. */
function nodeAddresses(nodes: readonly ManifestObject[]): readonly string[] {
  const of = (type: string): string[] =>
    nodes.flatMap((node) => {
      const addresses = listOf(node, 'addresses') as readonly { readonly type: string; readonly address: string }[]
      return addresses.find((one) => one.type === type)?.address ?? []
    })
  const outside = of('ExternalIP')
  return outside.length > 0 ? outside : of('InternalIP')
}

export interface DeployBrokerInit {
  readonly chosen: BrokerOptions
  /** Installs in spite of known problems. */
  readonly force: boolean
  readonly dryRun: boolean
  /** `--context c1`, for the commands that messages recommend. */
  readonly flags: string
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  readonly report: (change: Change) => void
}

/** Returns the addresses that tokens will contain. Throws UserError; for known problems before anything is changed. */
export async function deployBroker(admin: ClusterAdmin, init: DeployBrokerInit): Promise<readonly string[]> {
  const { chosen, dryRun, signal, report, say } = init
  const { namespace } = DEFAULT_VALUES.broker
  const earlier = await installedBroker(admin, namespace, signal)
  const openshift = await hasSecurityContextConstraints(admin, signal)
  const before = keepInstalled({ ...DEFAULT_VALUES, platform: { ...DEFAULT_VALUES.platform, openshift } }, earlier)
  const values = withOptions(withThisRelease(before), chosen)
  const moves = chosen.move === true && hasState(earlier) && canMove({ before, values })
  const follows = values.broker.topologyFrom === 'object'
  const useless = isInstalled(earlier) && !follows ? topologyAccess(before) : []
  const rights = [
    ...brokerRights(namespace, formOf(values), openshift),
    ...(follows ? topologyRights() : []),
    ...removalRights(useless),
    ...(moves ? moveRights(namespace) : []),
  ]
  await checkRights(admin, [...rights, ...mendingRights(earlier, namespace)], signal)
  if (hasState(earlier) && !moves) refuseMove({ title: admin.title, before, values })
  refuseFixed(admin, { earlier, before, values })
  refuseUnknown(admin, earlier, init)
  if (isInstalled(earlier)) reportKept(before, values, say)
  if (!init.force) await requirePlace(admin, values, init)
  const secrets = marked(await loginSecrets(admin, values, init), values)
  const secretMarks = await loginMarks(admin, { before, values, made: secrets }, signal)
  await requireAdmission(admin, [...brokerObjects(values), ...secrets], init)
  const context = { admin, dryRun, signal, report }
  const early = brokerObjects(values).filter(isEarly)
  await applyObjects(early, context)
  const { advertise } = values.broker
  const found = advertise.length > 0 || dryRun ? advertise : await findAddress(admin, values, init)
  if (!dryRun) await dropUselessClaim(admin, { earlier, values }, init)
  const whole = { ...values, broker: { ...values.broker, advertise: found } }
  if (moves && !dryRun) await moveBroker(admin, { ...init, before, values: whole, secrets })
  await applyObjects(secrets, context)
  await applySecretMarks(admin, secretMarks, context)
  if (follows) await applyCrd(TOPOLOGY, context)
  // Before the workload changes, as a later deploy knows no more that they are there.
  for (const ref of dryRun ? [] : useless.map(refOf))
    if (await admin.remove(ref, signal)) say(`  removed   ${titleOf(ref)}  (the broker follows no object any more)\n`)
  await applyObjects(
    brokerObjects(whole).filter((object) => !isEarly(object)),
    context,
  )
  if (!dryRun) await watchStart(admin, whole, init)
  return found
}

/**
 * Creates the Secrets for the login to an etcd that is installed with the broker. Checks the Secret for an external
 * etcd.
 */
async function loginSecrets(
  admin: ClusterAdmin,
  values: InstallValues,
  { clock, force, signal }: DeployBrokerInit,
): Promise<readonly ManifestObject[]> {
  const { namespace, etcd } = values.broker
  const form = formOf(values)
  if (form === 'included') return etcdSecrets(admin, { namespace, nowMs: clock.now() }, signal)
  if (form === 'given' && !force)
    await requireEtcdLogin(admin, { namespace, name: etcd.secret, login: etcd.login }, signal)
  return []
}

/** The changes of marks on the Secrets that are not created now. */
function loginMarks(
  admin: ClusterAdmin,
  { before, values, made }: Omit<Changing, 'earlier'> & { readonly made: readonly ManifestObject[] },
  signal: AbortSignal,
): Promise<readonly SecretMarkChange[]> {
  const all = formOf(values) === 'included' ? [ETCD_CA_SECRET, ETCD_SERVER_SECRET, ETCD_CLIENT_SECRET] : []
  const names = all.filter((name) => !made.some(({ metadata }) => metadata.name === name))
  const marks = { before: before.objects, wanted: values.objects }
  return planSecretMarks(admin, { namespace: values.broker.namespace, names, marks }, signal)
}

/**
 * These objects come first, because the rest needs the address of the Service, and a pod that moves the state must be
 * admitted before.
 */
const EARLY: ReadonlySet<string> = new Set(['Namespace', 'RoleBinding', 'Service'])
const isEarly = ({ kind }: ManifestObject): boolean => EARLY.has(kind)

function brokerObjects(values: InstallValues): readonly ManifestObject[] {
  return planBroker(values).flatMap((part) => part.objects)
}

/** What a broker that follows object Topology has outside of its namespace. None if it follows no object. */
function topologyAccess(values: InstallValues): readonly ManifestObject[] {
  return brokerObjects(values)
    .filter(({ kind }) => kind === 'ClusterRole' || kind === 'ClusterRoleBinding')
    .toReversed()
}

interface Changing {
  readonly earlier: InstalledBroker
  readonly before: InstallValues
  readonly values: InstallValues
}

/** Refuses options that would change properties of an existing database or volume. Throws UserError. */
function refuseFixed(admin: Pick<ClusterAdmin, 'title'>, { earlier, before, values }: Changing): void {
  const hasReplicas = earlier.deployment !== undefined || earlier.hasEtcdData
  if (!isBound(earlier.claim) && !hasReplicas) return
  const [was, is] = [before.broker, values.broker]
  const nothing = { hint: 'omit that flag; nothing was changed' }
  if (is.clusterset !== was.clusterset) {
    const fixed = `its clusterset is ${was.clusterset} and cannot be changed after the first start`
    throw new UserError(`--clusterset ${is.clusterset}: ${admin.title} already has a broker, and ${fixed}`, nothing)
  }
  const isIncluded = formOf(before) === 'included'
  const classOf = ({ broker, etcd }: InstallValues): string => (isIncluded ? etcd : broker).storage.storageClassName
  const [from, to] = [classOf(before), classOf(values)]
  if (from !== to && (isIncluded || isBound(earlier.claim))) {
    const fixed = `its ${isIncluded ? 'volumes have' : 'volume has'} ${from === '' ? 'no StorageClass' : `StorageClass ${from}`}`
    throw new UserError(`--storage-class ${to}: ${admin.title} already has a broker, and ${fixed}`, nothing)
  }
}

/**
 * Refuses arguments of the installed broker that this release does not know. Throws UserError. With `force` the
 * arguments are left out, and a message says so.
 */
function refuseUnknown(
  admin: Pick<ClusterAdmin, 'title'>,
  earlier: InstalledBroker,
  { force, say }: Pick<DeployBrokerInit, 'force' | 'say'>,
): void {
  const unknown = unknownArgs(earlier)
  if (unknown.length === 0) return
  const text = `the installed broker has arguments that this release does not know: ${unknown.join(', ')}`
  if (force) {
    say(`${text}; they are removed\n`)
    return
  }
  throw new UserError(`${admin.title}: ${text}`, {
    hint: 'remove them from StatefulSet sealane-broker, or let --force remove them; nothing was changed',
  })
}

function reportKept(before: InstallValues, values: InstallValues, say: (text: string) => void): void {
  const changed = changedValues(before, values)
  say(`a broker is already installed: ${changed.length === 0 ? 'its settings are kept' : 'these settings change'}\n`)
  for (const line of changed) say(`  ${line}\n`)
}

/** The rights to replace pods that are stuck (replaceStuckPods()), and a claim without a volume (dropUselessClaim()). */
function mendingRights(earlier: InstalledBroker, namespace: string): readonly Right[] {
  const { statefulSet, claim } = earlier
  const resources = [
    ...(statefulSet === undefined ? [] : ['pods']),
    ...(claim === undefined || isBound(claim) ? [] : ['persistentvolumeclaims']),
  ]
  return resources.map((resource) => ({ verb: 'delete', group: '', resource, namespace }))
}

/**
 * Deletes a claim that never got a volume and has another StorageClass than the requested one, because the StorageClass
 * of a claim cannot be changed.
 */
async function dropUselessClaim(
  admin: ClusterAdmin,
  { earlier: { claim }, values }: Pick<Changing, 'earlier' | 'values'>,
  init: DeployBrokerInit,
): Promise<void> {
  const { storageClassName } = (claim?.['spec'] ?? {}) as { readonly storageClassName?: string }
  const wanted = values.broker.storage.storageClassName
  if (claim === undefined || isBound(claim) || formOf(values) !== 'own' || wanted === (storageClassName ?? '')) return
  const ref = refOf(claim)
  await admin.remove(ref, init.signal)
  init.say(`  removed   PersistentVolumeClaim ${ref.namespace ?? ''}/${ref.name}  (it never had a volume)\n`)
  const look = async () => ((await admin.get(ref, init.signal)) === undefined ? undefined : { what: 'it still exists' })
  await waitUntil(look, { ...init, what: 'the claim to be deleted', hint: SAME_AGAIN })
}

const SAME_AGAIN = 'to continue, run the same command again'

async function watchStart(admin: ClusterAdmin, values: InstallValues, init: DeployBrokerInit): Promise<void> {
  const hint = `for details: kubectl --namespace ${values.broker.namespace} describe pods; ${SAME_AGAIN}`
  await waitUntil(() => brokerProgress(admin, values, init), { ...init, what: 'the broker to be ready', hint })
}
