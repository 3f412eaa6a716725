/** A broker that runs on a cluster: what is asked of it is asked by the same command in its pod, on its database. */
import { objectName } from '../../../install/names.ts'
import { DEFAULT_VALUES } from '../../../install/values.ts'
import type { CommandResult } from '../../../kubeapi/kube/http/pod-exec.ts'
import { KubeError } from '../../../kubeapi/kube/kube-error.ts'
import { knownReason } from '../../../model/reasons/reasons.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { clustersetWords } from '../../broker/which-clusterset.ts'
import type { CommandContext } from '../../context.ts'
import { type KubeTarget, targetFlags } from '../../target.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { brokerPods } from '../access/broker-pods.ts'
import { withAdmin } from '../access/with-admin.ts'

/** The state directory in the pod. */
export const STATE = '/var/lib/sealane/broker'

/** Exit statuses from here on are those of a process that was ended by a signal: its pod goes. */
const KILLED = 128

/** A broker on a cluster, and one of its clustersets. */
export interface BrokerInPod extends KubeTarget {
  /** Absent: the broker's own. */
  readonly clusterset?: string | undefined
}

/** Runs `sealane WORDS` in the broker's pod and gives what it printed. Throws UserError with what it said instead. */
export type AskBroker = (words: readonly string[], init?: AskInit) => Promise<string>

export interface AskInit {
  /** The command changes nothing: where one replica cannot run it, the next one does. */
  readonly looks?: boolean
}

/** What it printed as JSON. Throws UserError where that is none: an older version may print something else. */
export async function askForJson<T>(ask: AskBroker, words: readonly string[], init?: AskInit): Promise<T> {
  const text = await ask([...words, '-o', 'json'], init)
  try {
    return JSON.parse(text) as T
  } catch (cause) {
    // Not what it said: that may be a token.
    const command = `sealane ${words.join(' ')} -o json`
    throw new UserError(`the broker's version does not know this: ${command}: expected JSON`, { cause })
  }
}

export function withPodBroker<T>(
  target: BrokerInPod,
  context: CommandContext,
  work: (ask: AskBroker) => Promise<T>,
): Promise<T> {
  return withAdmin(target, new SystemClock(), context, ({ admin }) =>
    work(podBroker(admin, targetFlags(target, admin.contextName), context.signal, target.clusterset)),
  )
}

/** `flags` name the cluster in what is said. */
export function podBroker(
  admin: Pick<ClusterAdmin, 'title' | 'list' | 'exec'>,
  flags: string,
  signal: AbortSignal,
  clusterset?: string,
): AskBroker {
  return async (words, { looks = false } = {}) => {
    const { namespace } = DEFAULT_VALUES.broker
    const pods = await brokerPods(admin, { namespace, flags }, signal)
    const command = ['sealane', ...words, '--state', STATE, ...clustersetWords(clusterset)]
    const container = objectName('broker').replace('sealane-', '')
    const run = (pod: string): Promise<CommandResult> => admin.exec({ namespace, pod, container, command }, signal)
    const { status, stdout, stderr } = await (looks ? firstThatRuns(pods, run) : run(pods[0]))
    if (status === 0) return stdout
    throw refusedInPod(admin, stderr)
  }
}

/**
 * A pod on a node that has died counts as ready for a while. Gives what the first one says that can run the command, or
 * the last one; throws what that throws.
 */
async function firstThatRuns(
  [pod, ...others]: readonly [string, ...string[]],
  run: (pod: string) => Promise<CommandResult>,
): Promise<CommandResult> {
  const [next, ...rest] = others
  if (next === undefined) return run(pod)
  try {
    const result = await run(pod)
    if (result.status < KILLED) return result
  } catch (error) {
    if (!(error instanceof KubeError && (error.passing || error.code === 'NotFound'))) throw error
  }
  return firstThatRuns([next, ...rest], run)
}

/** What the command says that failed in the broker's pod: its message, and the name of its reason. */
export function refusedInPod({ title }: Pick<ClusterAdmin, 'title'>, stderr: string): UserError {
  const [, text = '', code] = /^(?:sealane: )?(.*?)(?:\nreason: (\w+))?$/s.exec(stderr.trim()) ?? []
  const reason = knownReason(code)
  return new UserError(`the broker of ${title} says: ${text}`, reason === undefined ? {} : { reason })
}
