/** The members of a broker on this machine, or of one on a cluster. */
import type { MemberSummary } from '../../compose/broker/broker.ts'
import { type CommandContext, type KubeTarget, withinTime } from '../context/context.ts'
import type { Members } from './pod-broker.ts'
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
    const { withPodMembers } = await import('./pod-broker.ts')
    return withinTime(context.signal, timeout, (signal) =>
      withPodMembers({ ...kube, clusterset }, { ...context, signal }, work),
    )
  }
  const { withBrokerStore } = await import('../../compose/broker/store.ts')
  return withBrokerStore(await stateOf({ state, clusterset }), work)
}

// What is read beside a broker is as old as its last word: a broker that has ended is told to whoever reads it.

/**
 * `no broker runs on /var/lib/sealane/broker: …`, with the time of its last word about `members`; undefined where one
 * runs, or nobody can know. In a pod that runs, the broker runs. Throws StateError where the store cannot be read.
 */
export async function unservedText(
  { kube, state, clusterset }: MembersPlace,
  { signal }: Pick<CommandContext, 'signal'>,
  members: readonly MemberSummary[],
): Promise<string | undefined> {
  if (kube !== undefined) return undefined
  const { isServed } = await import('../../compose/broker/status.ts')
  if ((await isServed(await stateOf({ state, clusterset }), signal)) !== false) return undefined
  const lastMs = Math.max(...members.map(({ lastSeenMs }) => lastSeenMs))
  const last = Number.isFinite(lastMs)
    ? `it heard a member last at ${new Date(lastMs).toISOString()}`
    : 'it heard no member'
  return `no broker runs on ${state}: what is shown is what it wrote, ${last}`
}
