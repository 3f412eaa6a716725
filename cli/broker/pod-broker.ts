/** The broker in a cluster: the admin service of its pods, through the port-forward of the API server. */
import { ADMIN_PORT, DEFAULT_VALUES, type ManifestObject } from '../../install/values/values.ts'
import { KubeError, refOf, withForwardedSocket } from '../../kubeapi/kube/kube.ts'
import {
  AdminUnreachableError,
  type BrokerAdmin,
  READING_METHODS,
  UNARY_METHODS,
  type UnaryMethod,
  localOperator,
  withAdminClient,
} from '../../protocol/admin/admin.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { isReady, selectorText } from '../installation/installation.ts'

const { namespace } = DEFAULT_VALUES.broker

type Admin = Pick<ClusterAdmin, 'title' | 'list' | 'forward'>

export interface PodBrokerInit {
  /** `--context c1`: the flags that name the cluster in messages. */
  readonly flags: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
  readonly signal: AbortSignal
}

/**
 * The admin service of a pod that is ready. An operation that changes nothing goes to the next pod if one does not
 * answer: a pod on a node that has died still counts as ready for a while. Each operation throws UserError with the
 * message of the broker, or if there is no pod that is ready, and KubeError.
 */
export function podBroker(admin: Admin, init: PodBrokerInit): BrokerAdmin {
  const { flags, signal } = init
  const unary =
    (method: UnaryMethod) =>
    async (request: object = {}): Promise<unknown> => {
      const pods = await brokerPods(admin, flags, signal)
      const call = (pod: string): Promise<unknown> => callOf(adminOfPod(admin, pod, init), method)(request)
      return READING_METHODS.has(method) ? firstThatAnswers(pods, call) : call(pods[0])
    }
  const first = async (): Promise<BrokerAdmin> => {
    const [pod] = await brokerPods(admin, flags, signal)
    return adminOfPod(admin, pod, init)
  }
  return {
    ...unaryMethods(unary),
    backup: async (request, take) => (await first()).backup(request, take),
    stageRestore: async (request, parts) => (await first()).stageRestore(request, parts),
  }
}

/** The admin service of one pod. Throws as podBroker() does. */
export function adminOfPod(admin: Admin, pod: string, init: PodBrokerInit): BrokerAdmin {
  const { clusterset, signal } = init
  const open = (ended: AbortSignal) =>
    admin.forward({ namespace, pod, port: ADMIN_PORT }, AbortSignal.any([signal, ended]))
  const through = <T>(work: (broker: BrokerAdmin) => Promise<T>): Promise<T> =>
    withForwardedSocket(open, async (socket, failed) => {
      try {
        return await withAdminClient({ socket, clusterset, operator: localOperator(), signal }, work)
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof AdminUnreachableError)) throw saidBy(admin, error)
        throw failed.aborted ? withRight(failed.reason) : error
      }
    })
  const unary =
    (method: UnaryMethod) =>
    (request: object = {}): Promise<unknown> =>
      through((broker) => callOf(broker, method)(request))
  return {
    ...unaryMethods(unary),
    backup: (request, take) => through((broker) => broker.backup(request, take)),
    stageRestore: (request, parts) => through((broker) => broker.stageRestore(request, parts)),
  }
}

function callOf(broker: BrokerAdmin, method: UnaryMethod): (request: object) => Promise<unknown> {
  return broker[method].bind(broker) as (request: object) => Promise<unknown>
}

function unaryMethods(make: (method: UnaryMethod) => (request?: object) => Promise<unknown>) {
  return Object.fromEntries(UNARY_METHODS.map((method) => [method, make(method)])) as unknown as Pick<
    BrokerAdmin,
    UnaryMethod
  >
}

function saidBy({ title }: Pick<ClusterAdmin, 'title'>, error: unknown): unknown {
  if (!(error instanceof RefusedError) && !(error instanceof UserError)) return error
  const hint = error instanceof UserError ? error.hint : undefined
  return new UserError(`the broker of ${title} answered: ${error.message}`, {
    ...(error.reason === undefined ? {} : { reason: error.reason }),
    ...(hint === undefined ? {} : { hint }),
    cause: error,
  })
}

/** From 1.35 on, an API server that misses the second of the two rights does not name it. */
function withRight(error: unknown): unknown {
  if (!(error instanceof KubeError) || error.code !== 'Forbidden') return error
  const { code, status, reason, message } = error
  const text = `${message}: get and create pods/portforward in namespace ${namespace} are required`
  return new KubeError(text, { code, status, reason, cause: error })
}

/** Gives the first answer, and throws what the last pod throws. */
async function firstThatAnswers<T>(
  [pod, ...others]: readonly [string, ...string[]],
  call: (pod: string) => Promise<T>,
): Promise<T> {
  const [next, ...rest] = others
  if (next === undefined) return call(pod)
  try {
    return await call(pod)
  } catch (error) {
    const isGone = error instanceof KubeError && (error.passing || error.code === 'NotFound')
    if (!isGone && !(error instanceof AdminUnreachableError)) throw error
  }
  return firstThatAnswers([next, ...rest], call)
}

/**
 * All pods of the broker that are ready, with those that are being deleted last. Throws UserError if there is none;
 * `flags` identify the cluster in the message.
 */
export async function brokerPods(
  admin: Pick<ClusterAdmin, 'title' | 'list'>,
  flags: string,
  signal: AbortSignal,
): Promise<readonly [string, ...string[]]> {
  const pods = await admin.list('v1', 'Pod', { namespace, labelSelector: selectorText('broker') }, signal)
  const going = (pod: ManifestObject): boolean => 'deletionTimestamp' in pod.metadata
  const ready = pods.filter(isReady).sort((a, b) => Number(going(a)) - Number(going(b)))
  const [first, ...others] = ready.map((pod) => refOf(pod).name)
  if (first !== undefined) return [first, ...others]
  const state = pods.length === 0 ? 'no broker is installed' : 'no pod of the broker is ready'
  throw new UserError(`${admin.title}: ${state}`, {
    hint: `install or repair it: sealane broker deploy ${flags}`,
  })
}
