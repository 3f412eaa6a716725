/**
 * The Membership of a real cluster stays as long as the cluster is a member. Deleting it is refused, but a user who
 * deletes its CRD takes it along: the agent writes it again once the kind is served. Only `sealane leave` ends a
 * membership, by saying so on it first.
 */
import type { ClusterApi, ObjectCache } from '../../kubeapi/kubeapi.ts'
import { MEMBERSHIP_NAME, type Membership, keptMembership } from '../../model/model.ts'
import {
  type IdentityStore,
  type JoinStore,
  type MemberIdentity,
  endOfIdentity,
} from '../../protocol/membership/membership.ts'
import type { ComponentDeps } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'

/** Each look is one small request to the API server. */
const LOOK_MS = 5000

/** Past all caches. */
export interface MembershipAccess {
  /** As the server has it now. Throws ClusterApiError, also where the kind is not served. */
  hasMembership(signal: AbortSignal): Promise<boolean>
  /** Fails where there is one. Throws ClusterApiError. */
  createMembership(membership: Membership, signal: AbortSignal): Promise<void>
}

export interface KeepMembershipInit {
  readonly api: ClusterApi
  readonly kube: MembershipAccess
  readonly identity: IdentityStore
}

/** Until the signal. Never rejects. */
export async function keepMembership(
  { clock, logger }: Pick<ComponentDeps, 'clock' | 'logger'>,
  init: KeepMembershipInit,
  signal: AbortSignal,
): Promise<void> {
  let reported: string | undefined
  while (!signal.aborted) {
    const problem = await look(init, logger, signal).then(
      () => undefined,
      (error: unknown) => (signal.aborted ? reported : String(error)),
    )
    if (problem !== undefined && problem !== reported) {
      logger.warn('the Membership is not looked at', { reason: 'RoundFailed', why: problem })
    }
    reported = problem
    await clock.sleep(LOOK_MS, signal).catch(() => undefined)
  }
}

async function look({ api, kube, identity }: KeepMembershipInit, logger: Logger, signal: AbortSignal): Promise<void> {
  const wanted = await wantedMembership(api.cache('Membership'), identity)
  if (wanted?.spec.phase !== 'joined' || (await kube.hasMembership(signal))) return
  await kube.createMembership(wanted, signal)
  const { clusterId: cluster } = wanted.spec
  logger.warn('the Membership was gone, and is there again', { reason: 'MembershipRestored', cluster })
}

/** As the broker said last; else as the identity has it, once it is certain that the broker has said nothing. */
async function wantedMembership(
  memberships: ObjectCache<Membership>,
  identity: IdentityStore,
): Promise<Membership | undefined> {
  const known = memberships.get(MEMBERSHIP_NAME)
  if (known !== undefined || !memberships.synced) return known
  const kept = await identity.read()
  return kept === undefined ? undefined : keptMembership(kept)
}

// The identity of a cluster, remembered by each of its agents for as long as the process lives: one that somebody took
// away is written again by whoever acts, also after leadership has moved.

/** An agent that stands by looks so often: its copy must not be older than a renewal that counts already. */
const IDENTITY_LOOK_MS = 10_000

type Deps = Pick<ComponentDeps, 'clock' | 'logger'> & { readonly api: Pick<ClusterApi, 'cache'> }

interface RememberedIdentity extends IdentityStore, JoinStore {
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
