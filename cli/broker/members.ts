/** The members of a broker on this machine or in a cluster. */
import type { MemberSummary } from '../../compose/broker/broker.ts'
import { type CommandContext, type KubeTarget, withinTime } from '../context/context.ts'
import type { Members } from './pod-broker.ts'
import { stateOf } from './which-clusterset.ts'

export interface MembersPlace {
  /** Undefined for the broker on this machine. */
  readonly kube: KubeTarget | undefined
  readonly state: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
  /** In milliseconds. */
  readonly timeout: number
}

/** Loaded on demand, because the store loads the broker's database. */
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

// Data that is read from the store is only as current as the broker's last write. So the reader is told if the broker
// does not run.

/**
 * `no broker runs on /var/lib/sealane/broker: …`, with the time of the last contact with one of `members`. Undefined if
 * a broker runs, or if that cannot be determined. For a broker in a cluster it is undefined, because in a running pod
 * the broker runs. Throws StateError if the store cannot be read.
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
