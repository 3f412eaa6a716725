/** The members of a broker on this machine, or of one on a cluster. */
import type { CommandContext } from '../context.ts'
import type { Members } from '../kube/broker/pod-members.ts'
import type { KubeTarget } from '../target.ts'
import { withinTime } from '../within-time.ts'
import { stateOf } from './which-clusterset.ts'

export interface MembersPlace {
  /** Undefined: on this machine. */
  readonly kube: KubeTarget | undefined
  readonly state: string
  /** Absent: the broker's own. */
  readonly clusterset?: string | undefined
  /** Milliseconds. */
  readonly timeout: number
}

/** As for tokens: the store brings the broker's database along, so it is loaded only when it is needed. */
export async function withMembers<T>(
  { kube, state, clusterset, timeout }: MembersPlace,
  context: CommandContext,
  work: (members: Members) => Promise<T>,
): Promise<T> {
  if (kube !== undefined) {
    const { withPodMembers } = await import('../kube/broker/pod-members.ts')
    return withinTime(context.signal, timeout, (signal) =>
      withPodMembers({ ...kube, clusterset }, { ...context, signal }, work),
    )
  }
  const { withBrokerStore } = await import('../../compose/parts/broker-store.ts')
  return withBrokerStore(await stateOf({ state, clusterset }), work)
}
