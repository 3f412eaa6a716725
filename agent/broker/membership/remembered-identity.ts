/**
 * The identity of a cluster, remembered by each of its agents for as long as the process lives: one that somebody took
 * away is written again by whoever acts, also after leadership has moved.
 */
import type { ClusterApi } from '../../../kubeapi/cluster-api.ts'
import { MEMBERSHIP_NAME } from '../../../model/objects.ts'
import type { IdentityStore } from '../../../protocol/identity/identity-store.ts'
import type { MemberIdentity } from '../../../protocol/identity/member-files.ts'
import { type JoinStore, endOfIdentity } from '../../../protocol/join.ts'
import type { ComponentDeps } from '../../../runtime/component.ts'

/** An agent that stands by looks so often: its copy must not be older than a renewal that counts already. */
const IDENTITY_LOOK_MS = 10_000

type Deps = Pick<ComponentDeps, 'clock' | 'logger'> & { readonly api: Pick<ClusterApi, 'cache'> }

export interface RememberedIdentity extends IdentityStore, JoinStore {
  /** Keeps looking, until the signal; writes nothing. Never rejects. */
  follow(signal: AbortSignal): Promise<void>
}

/**
 * Reading one that is gone writes it again, where this cluster is a member, its time is not over, and no token lies
 * there to make another. What cannot be written now (nobody but an administrator makes the Secret) is none until then.
 */
export function rememberIdentity(deps: Deps, store: IdentityStore & JoinStore): RememberedIdentity {
  const { clock, logger } = deps
  let latest: MemberIdentity | undefined
  let reported: string | undefined
  const look = async (): Promise<MemberIdentity | undefined> => {
    const found = await store.read()
    latest = found ?? latest
    return found
  }
  const putBack = async (): Promise<MemberIdentity | undefined> => {
    const known = latest
    if (known === undefined || endOfIdentity(known) <= clock.now() || !isMember(deps)) return undefined
    if ((await store.token()) !== undefined) return undefined
    try {
      await store.write(known)
    } catch (error) {
      const why = String(error)
      if (why !== reported)
        logger.warn('the identity is gone, and is not there again yet', { reason: 'RoundFailed', why })
      reported = why
      return undefined
    }
    reported = undefined
    logger.warn('the identity was gone, and is there again', { reason: 'MembershipRestored', place: store.place })
    return known
  }
  return {
    ...store,
    read: async () => (await look()) ?? (await putBack()),
    write: async (identity) => {
      await store.write(identity)
      latest = identity
    },
    remove: async () => {
      latest = undefined
      await store.remove()
    },
    follow: async (signal) => {
      while (!signal.aborted) {
        await look().catch(() => undefined)
        await clock.sleep(IDENTITY_LOOK_MS, signal).catch(() => undefined)
      }
    },
  }
}

function isMember({ api }: Deps): boolean {
  const memberships = api.cache('Membership')
  return memberships.synced && memberships.get(MEMBERSHIP_NAME)?.spec.phase === 'joined'
}
