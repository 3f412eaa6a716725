/** A broker that runs on a cluster: what is asked of it is asked by the same command in its pod, on its database. */
import { objectName } from '../../../install/names.ts'
import { DEFAULT_VALUES } from '../../../install/values.ts'
import { knownReason } from '../../../model/reasons/reasons.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { clustersetWords } from '../../broker/which-clusterset.ts'
import type { CommandContext } from '../../context.ts'
import { type KubeTarget, targetFlags } from '../../target.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { brokerPod } from './deploy-broker.ts'
import { withAdmin } from '../access/installed-site.ts'

/** The state directory in the pod. */
export const STATE = '/var/lib/sealane/broker'

/** A broker on a cluster, and one of its clustersets. */
export interface BrokerInPod extends KubeTarget {
  /** Absent: the broker's own. */
  readonly clusterset?: string | undefined
}

/** Runs `sealane WORDS` in the broker's pod and gives what it printed. Throws UserError with what it said instead. */
export type AskBroker = (words: readonly string[]) => Promise<string>

/** What it printed as JSON. Throws UserError where that is none: an older version may print something else. */
export async function askForJson<T>(ask: AskBroker, words: readonly string[]): Promise<T> {
  const text = await ask([...words, '-o', 'json'])
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
  return async (words) => {
    const { namespace } = DEFAULT_VALUES.broker
    const pod = await brokerPod(admin, { namespace, flags }, signal)
    const command = ['sealane', ...words, '--state', STATE, ...clustersetWords(clusterset)]
    const container = objectName('broker').replace('sealane-', '')
    const { status, stdout, stderr } = await admin.exec({ namespace, pod, container, command }, signal)
    if (status === 0) return stdout
    throw refusedInPod(admin, stderr)
  }
}

/** What the command says that failed in the broker's pod: its message, and the name of its reason. */
export function refusedInPod({ title }: Pick<ClusterAdmin, 'title'>, stderr: string): UserError {
  const [, text = '', code] = /^(?:sealane: )?(.*?)(?:\nreason: (\w+))?$/s.exec(stderr.trim()) ?? []
  const reason = knownReason(code)
  return new UserError(`the broker of ${title} says: ${text}`, reason === undefined ? {} : { reason })
}
