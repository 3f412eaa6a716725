/**
 * Moves the state of a broker in a cluster between its volume and an etcd while no broker runs. If the move is
 * interrupted, the same command continues: the old objects are removed last, and a store that was moved is marked as
 * such.
 */
import { planBroker, planEtcd } from '../../../install/install.ts'
import {
  type BrokerForm,
  ETCD_MEMBERS,
  type InstallValues,
  type ManifestObject,
  formOf,
  objectName,
} from '../../../install/values/values.ts'
import { refOf, titleOf } from '../../../kubeapi/kube/kube.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { UserError } from '../../../runtime/runtime.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import {
  type Change,
  type Right,
  applyObjects,
  lastSaid,
  selectorText,
  waitUntil,
} from '../../installation/installation.ts'
import { readEtcdUrl } from './deploy-options.ts'
import { MOVE_POD, type MoveInit, canMove, planMovePod } from './plan-move.ts'

export interface MoveBrokerInit extends MoveInit {
  /** The Secrets that the new form needs. */
  readonly secrets: readonly ManifestObject[]
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  readonly report: (change: Change) => void
}

const SAME_AGAIN = 'to continue, run the same command again'
/** The error of a store that another broker still holds. etcd ends the session of a killed replica after 15 seconds. */
const SERVED = /reason: StateLocked$/
const MAX_ATTEMPTS = 12
const PAUSE_MS = 3000
const STILL_SERVED = 'the state was not moved: another broker, which is not part of this installation, still serves it'
/** The minimum time limit for copying the state. */
const COPY_MS = 15 * 60_000

/** The rights that a move needs in addition to those of an installation. */
export function moveRights(namespace: string): readonly Right[] {
  const rights = [
    ...['create', 'delete'].map((verb) => ({ verb, group: '', resource: 'pods' })),
    ...['statefulsets', 'deployments'].map((resource) => ({ verb: 'delete', group: 'apps', resource })),
  ]
  return rights.map((right) => ({ ...right, namespace }))
}

/** Throws UserError. Afterwards the objects of the old form are removed, except for volumes and Secrets. */
export async function moveBroker(admin: ClusterAdmin, init: MoveBrokerInit): Promise<void> {
  const { before, values, say, signal } = init
  await prepareTarget(admin, init)
  await stopBrokers(admin, init)
  for (let attempt = 1; !(await moveState(admin, init)); attempt += 1) {
    if (attempt === MAX_ATTEMPTS) throw new UserError(STILL_SERVED, { hint: SAME_AGAIN })
    await init.clock.sleep(PAUSE_MS, signal)
  }
  const left = [
    ...planBroker(before).flatMap(({ objects }) => objects.filter(({ kind }) => isWorkload(kind))),
    ...(formOf(values) === 'own' && formOf(before) === 'included' ? planEtcd(before).objects : []),
  ]
  for (const object of left.reverse()) {
    if (await admin.remove(refOf(object), signal)) say(`  removed   ${titleOf(refOf(object))}\n`)
  }
}

/**
 * False if, according to the store, a broker has served it until a moment ago. Throws UserError if the state is not
 * moved.
 */
async function moveState(admin: ClusterAdmin, init: MoveBrokerInit): Promise<boolean> {
  const { say, signal } = init
  const pod = planMovePod(init)
  // An interrupted attempt may have left its pod.
  await removeAndWait(admin, pod, init)
  say(`  moving    the state, in ${titleOf(refOf(pod))}\n`)
  await admin.create(pod, { dryRun: false }, signal)
  try {
    await waitUntil(() => movedOf(admin, pod, signal), {
      ...init,
      timeoutMs: Math.max(init.timeoutMs, COPY_MS),
      what: 'the state to move',
      hint: SAME_AGAIN,
    })
  } catch (error) {
    if (error instanceof UserError && SERVED.test(error.message)) return false
    throw error
  }
  await removeAndWait(admin, pod, init)
  return true
}

const isWorkload = (kind: string): boolean => kind === 'StatefulSet' || kind === 'Deployment'

/** Before any broker stops, the new etcd has to run, or the new volume has to be claimed. */
async function prepareTarget(admin: ClusterAdmin, init: MoveBrokerInit): Promise<void> {
  const { values, secrets, signal, report } = init
  const context = { admin, dryRun: false, signal, report }
  const [broker] = planBroker(values)
  const early = new Set(['ServiceAccount', 'PersistentVolumeClaim'])
  await applyObjects(broker?.objects.filter(({ kind }) => early.has(kind)) ?? [], context)
  if (formOf(values) !== 'included') return
  await applyObjects([...secrets, ...planEtcd(values).objects], context)
  const ref = {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    namespace: values.broker.namespace,
    name: objectName('etcd'),
  }
  const look = async () => {
    const { readyReplicas = 0 } = ((await admin.get(ref, signal))?.['status'] ?? {}) as { readyReplicas?: number }
    return readyReplicas >= ETCD_MEMBERS ? undefined : { what: `etcd: ${readyReplicas} of ${ETCD_MEMBERS} are ready` }
  }
  await waitUntil(look, { ...init, what: 'etcd to be ready', hint: `${SAME_AGAIN}; nothing was moved` })
}

async function stopBrokers(admin: ClusterAdmin, init: MoveBrokerInit): Promise<void> {
  const { before, say, signal } = init
  const { namespace } = before.broker
  const kind = formOf(before) === 'own' ? 'StatefulSet' : 'Deployment'
  const ref = { apiVersion: 'apps/v1', kind, namespace, name: objectName('broker') }
  if ((await admin.get(ref, signal)) !== undefined) {
    say(`  stopped   ${titleOf(ref)}: lanes, routes and DNS keep working, changes wait\n`)
    await admin.merge(ref, { spec: { replicas: 0 } }, signal)
  }
  const look = async () => {
    const pods = await admin.list('v1', 'Pod', { namespace, labelSelector: selectorText('broker') }, signal)
    const [running] = pods.filter(({ metadata }) => metadata.name !== MOVE_POD)
    return running === undefined ? undefined : { what: titleOf(refOf(running)) }
  }
  await waitUntil(look, { ...init, what: 'the broker to stop', hint: SAME_AGAIN })
}

interface PodStatus {
  readonly phase?: string
  readonly message?: string
  readonly containerStatuses?: readonly { readonly state?: { readonly terminated?: { readonly message?: string } } }[]
}

async function movedOf(
  admin: Pick<ClusterAdmin, 'get'>,
  pod: ManifestObject,
  signal: AbortSignal,
): Promise<{ readonly what: string } | undefined> {
  const ref = refOf(pod)
  const { phase, message, containerStatuses } = ((await admin.get(ref, signal))?.['status'] ?? {}) as PodStatus
  if (phase === 'Succeeded') return undefined
  if (phase !== 'Failed') return { what: titleOf(ref) }
  const said = lastSaid(containerStatuses?.[0]?.state?.terminated?.message ?? message ?? '').trim()
  const log = `kubectl --namespace ${ref.namespace ?? ''} logs ${ref.name}`
  throw new UserError(`the state was not moved: ${said === '' ? `${titleOf(ref)} has failed` : said}`, {
    hint: `see the log: ${log}; after the problem is fixed, ${SAME_AGAIN}`,
  })
}

async function removeAndWait(admin: ClusterAdmin, pod: ManifestObject, init: MoveBrokerInit): Promise<void> {
  const ref = refOf(pod)
  if (!(await admin.remove(ref, init.signal))) return
  const look = async () => ((await admin.get(ref, init.signal)) === undefined ? undefined : { what: titleOf(ref) })
  await waitUntil(look, { ...init, what: 'the pod of the move to be deleted', hint: SAME_AGAIN })
}

// The state of a broker is in one store. With another store the broker would start empty and know no member. So a
// command that asks for another store is refused, and the message names the command that moves the state. Pure.

const WORDS: Readonly<Record<BrokerForm, string>> = {
  own: 'one broker with its own volume',
  included: 'replicas with the etcd that is installed with them',
  given: 'replicas with an external etcd',
}

const ALONG = 'to move the state, which stops the broker for about a minute, run the same command with --move'

interface RefuseMoveInit {
  /** The title of the cluster, for people. */
  readonly title: string
  readonly before: InstallValues
  readonly values: InstallValues
}

/** Call this if a broker is installed or its data exists. Throws UserError. */
export function refuseMove({ title, before, values }: RefuseMoveInit): void {
  const [was, is] = [formOf(before), formOf(values)]
  if (was === is && (was !== 'given' || isSameStore(before, values))) return
  const isOther =
    was === is ? `another store: ${values.broker.etcd.url} instead of ${before.broker.etcd.url}` : WORDS[is]
  const [from, to] = [storeOf(before), storeOf(values)]
  const migrate = `sealane broker migrate --from ${from} --to ${to}`
  const fewer = was === 'own' || is !== 'own' ? '' : 'for fewer replicas with the same etcd, use --replicas 2\n'
  throw new UserError(
    `${title} already has ${WORDS[was]}; this command asks for ${isOther}, which would start with an empty state`,
    {
      hint:
        `${canMove({ before, values }) ? ALONG : `to move the state, stop the broker and run ${migrate}`}\n${fewer}` +
        'nothing was changed',
    },
  )
}

/** The store as an argument of `broker migrate`. */
function storeOf(values: InstallValues): string {
  return values.broker.store === 'sqlite' ? 'sqlite' : values.broker.etcd.url
}

/** Members of an etcd are replaced one by one, so two endpoint lists of the same etcd have a member in common. */
function isSameStore(before: InstallValues, values: InstallValues): boolean {
  const [was, is] = [readEtcdUrl(before.broker.etcd.url), readEtcdUrl(values.broker.etcd.url)]
  return was.prefix === is.prefix && is.endpoints.some((one) => was.endpoints.includes(one))
}
