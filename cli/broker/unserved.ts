/** What is read beside a broker is as old as its last word: a broker that has ended is told to whoever reads it. */
import type { MemberSummary } from '../../compose/parts/broker-store.ts'
import type { CommandContext } from '../context.ts'
import { stateOf } from './which-clusterset.ts'
import type { MembersPlace } from './with-members.ts'

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
  const { isServed } = await import('../../compose/parts/broker-status.ts')
  if ((await isServed(await stateOf({ state, clusterset }), signal)) !== false) return undefined
  const lastMs = Math.max(...members.map(({ lastSeenMs }) => lastSeenMs))
  const last = Number.isFinite(lastMs)
    ? `it heard a member last at ${new Date(lastMs).toISOString()}`
    : 'it heard no member'
  return `no broker runs on ${state}: what is shown is what it wrote, ${last}`
}
