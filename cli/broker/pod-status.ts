/** The status of a broker in a cluster: the state of its pods, and the report of one of them. */
import type { BrokerStatus, StatusProblem } from '../../protocol/admin/admin.ts'
import { DEFAULT_VALUES, type ManifestObject } from '../../install/values/values.ts'
import { refOf } from '../../kubeapi/kube/kube.ts'
import { UserError, messageOf } from '../../runtime/runtime.ts'
import type { PartPods, ShownStatus } from './status-text.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { firstTrouble, isReady, selectorText } from '../installation/installation.ts'
import { installedBroker } from './deploy/installed-broker.ts'
import { adminOfPod } from './pod-broker.ts'

type Admin = Pick<ClusterAdmin, 'title' | 'get' | 'list' | 'forward'>

const { namespace } = DEFAULT_VALUES.broker
/** `flags` identify the cluster in hints. Throws UserError if no broker is installed. */
export async function podStatus(
  admin: Admin,
  flags: string,
  signal: AbortSignal,
): Promise<Omit<ShownStatus, 'health'>> {
  const { statefulSet, deployment, etcd } = await installedBroker(admin, namespace, signal)
  const workload = statefulSet ?? deployment
  if (workload === undefined)
    throw new UserError(`${admin.title}: no broker is installed`, {
      hint: `install it: sealane broker deploy ${flags}`,
    })
  const list = (part: 'broker' | 'etcd') =>
    admin.list('v1', 'Pod', { namespace, labelSelector: selectorText(part) }, signal)
  const brokers = await list('broker')
  const broker = partPods(workload, brokers)
  const members = etcd === undefined ? undefined : partPods(etcd, await list('etcd'))
  const asked = await askOne(admin, brokers, { flags, signal })
  const problems = [
    ...partProblems('broker', broker, 1),
    // The broker itself reports more about a store without a majority.
    ...(members === undefined ? [] : partProblems('etcd', members, Math.floor(members.wanted / 2) + 1)),
    ...(asked.status?.problems ?? []),
    ...asked.problems,
  ]
  return {
    problems,
    pods: { broker, ...(members === undefined ? {} : { etcd: members }) },
    ...(asked.status === undefined ? {} : { broker: asked.status }),
  }
}

function partPods(workload: ManifestObject, pods: readonly ManifestObject[]): PartPods {
  const { replicas = 1 } = (workload['spec'] ?? {}) as { readonly replicas?: number }
  const going = (pod: ManifestObject): boolean => 'deletionTimestamp' in pod.metadata
  const troubles = pods.flatMap((pod) => firstTrouble([pod])?.why ?? [])
  return { wanted: replicas, ready: pods.filter((pod) => isReady(pod) && !going(pod)).length, troubles }
}

function partProblems(part: string, { ready, wanted, troubles }: PartPods, least: number): readonly StatusProblem[] {
  if (ready >= wanted) return []
  const health = ready < least ? 'down' : 'degraded'
  const text = `${ready} of ${wanted} pods of ${part} are ready`
  return [{ health, text }, ...troubles.map((why) => ({ health: 'degraded' as const, text: why }))]
}

interface PodAnswer {
  readonly status?: BrokerStatus
  readonly problems: readonly StatusProblem[]
}

/**
 * Asks a pod that is ready, else one that runs, because a running broker knows what prevents it from becoming ready.
 */
async function askOne(
  admin: Admin,
  pods: readonly ManifestObject[],
  init: { readonly flags: string; readonly signal: AbortSignal },
): Promise<PodAnswer> {
  const runs = ({ status }: ManifestObject): boolean =>
    (status as { readonly phase?: string } | undefined)?.phase === 'Running'
  const pod = pods.find(isReady) ?? pods.find(runs)
  if (pod === undefined) return { problems: [] }
  const { name } = refOf(pod)
  try {
    return { status: await adminOfPod(admin, name, init).status(), problems: [] }
  } catch (error) {
    init.signal.throwIfAborted()
    return unasked(name, messageOf(error))
  }
}

function unasked(pod: string, why: string): PodAnswer {
  return { problems: [{ health: 'degraded', text: `pod ${pod} did not report its status: ${why}` }] }
}
