/**
 * Keeps the Membership of a Kubernetes cluster while the cluster is a member. Deleting it is refused, but deleting its
 * CRD also deletes it: the agent creates it again once the kind is served. Only `sealane leave` ends a membership, and
 * it sets that on the Membership first.
 */
import type { Exposure } from '../../model/access/access.ts'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { MEMBERSHIP_NAME, type Membership, keptMembership } from '../../model/model.ts'
import type { IdentityStore, JoinStore, MemberIdentity } from '../../protocol/membership/membership.ts'
import type { ComponentDeps } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'

/** Each check is one small request to the API server. */
const LOOK_MS = 5000

/** Reads and writes the Membership directly, bypassing all caches. */
export interface MembershipAccess {
  /** Whether the server has a Membership. Throws ClusterApiError, also if the kind is not served. */
  hasMembership(signal: AbortSignal): Promise<boolean>
  /** Creates the Membership. Throws ClusterApiError, also if there is one. */
  createMembership(membership: Membership, signal: AbortSignal): Promise<void>
}

export interface KeepMembershipInit {
  readonly api: ClusterApi
  readonly kube: MembershipAccess
  readonly identity: IdentityStore
  /** See JoinWithTokenInit. */
  readonly exposure?: Exposure | undefined
}

/** Runs until the signal. Never rejects. */
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
      logger.warn('cannot check the Membership; retrying', { reason: 'RoundFailed', why: problem })
    }
    reported = problem
    await clock.sleep(LOOK_MS, signal).catch(() => undefined)
  }
}

async function look(init: KeepMembershipInit, logger: Logger, signal: AbortSignal): Promise<void> {
  const { kube } = init
  const wanted = await wantedMembership(init)
  if (wanted?.spec.phase !== 'joined' || (await kube.hasMembership(signal))) return
  await kube.createMembership(wanted, signal)
  const { clusterId: cluster } = wanted.spec
  logger.warn('the Membership was removed; the agent restored it', { reason: 'MembershipRestored', cluster })
}

/** The Membership by the cache. If the cache is synced and has none, the one by the identity. */
async function wantedMembership({ api, identity, exposure }: KeepMembershipInit): Promise<Membership | undefined> {
  const memberships = api.cache('Membership')
  const known = memberships.get(MEMBERSHIP_NAME)
  if (known !== undefined || !memberships.synced) return known
  const answer = await identity.read()
  return answer === undefined ? undefined : keptMembership(answer, { exposure, kept: await identity.access() })
}

// Keeps a copy of the identity in the memory of each agent process. If another process removes the identity, the acting
// agent writes it again, also after leadership has moved.

/** A standby agent reads the identity this often, so that its copy is not older than a renewal that is in effect. */
const IDENTITY_LOOK_MS = 10_000

type Deps = Pick<ComponentDeps, 'clock' | 'logger'> & { readonly api: Pick<ClusterApi, 'cache'> }

interface RememberedIdentity extends IdentityStore, JoinStore {
  /** Reads the identity regularly until the signal, without writing. Never rejects. */
  follow(signal: AbortSignal): Promise<void>
}

/**
 * Gives a store that writes a missing identity again when it is read, if this cluster is a member and no
 * token is stored for a new one. One that has expired can still be renewed. If the write fails (only an administrator can create the Secret), the
 * store has no identity until a later try succeeds.
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
    if (known === undefined || !isMember(deps)) return undefined
    if ((await store.token()) !== undefined) return undefined
    try {
      await store.write(known)
    } catch (error) {
      const why = String(error)
      if (why !== reported)
        logger.warn('the identity was removed and cannot be restored yet; retrying', { reason: 'RoundFailed', why })
      reported = why
      return undefined
    }
    reported = undefined
    logger.warn('the identity was removed; the agent restored it', { reason: 'MembershipRestored', place: store.place })
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
