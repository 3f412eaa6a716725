/**
 * The Membership, for those that depend on it (whether this cluster has joined, and whether it leaves) and for those that
 * change it.
 */
import { MEMBERSHIP_NAME, type Membership } from '../model/model.ts'
import { WriteQueue, orAborted } from '../reconcile/reconcile.ts'
import type { ClusterApi } from './cluster-api.ts'

/** Resolves with the first Membership for which `is` is true; with undefined if the signal is aborted first. */
export function whenMembership(
  api: ClusterApi,
  is: (membership: Membership) => boolean,
  signal: AbortSignal,
): Promise<Membership | undefined> {
  const memberships = api.cache('Membership')
  return new Promise((resolve) => {
    const look = (): void => {
      const found = memberships.synced ? memberships.get(MEMBERSHIP_NAME) : undefined
      const isFound = found !== undefined && is(found)
      if (!isFound && !signal.aborted) return
      stop()
      signal.removeEventListener('abort', look)
      resolve(signal.aborted ? undefined : found)
    }
    const stop = memberships.onChange(look)
    signal.addEventListener('abort', look, { once: true })
    look()
  })
}

export interface LeavingWatch {
  /** Aborted once, when this cluster leaves the clusterset. */
  readonly signal: AbortSignal
  /** Id of the cluster in the last Membership; undefined if there has been none. */
  readonly clusterId: string | undefined
  close(): void
}

/**
 * Detects that this cluster leaves: its Membership has the phase `leaving`, or is deleted after it has been seen. If
 * there never was a Membership, the cluster may not have joined yet, and does not leave. `seen` is a Membership from
 * before the watch.
 */
export function watchLeaving(api: ClusterApi, seen?: Membership): LeavingWatch {
  const memberships = api.cache('Membership')
  const left = new AbortController()
  let clusterId = seen?.spec.clusterId
  const look = (): void => {
    const membership = memberships.get(MEMBERSHIP_NAME)
    const hasVanished = membership === undefined && clusterId !== undefined
    clusterId = membership?.spec.clusterId ?? clusterId
    if (hasVanished || membership?.spec.phase === 'leaving') left.abort(new Error('this cluster leaves the clusterset'))
  }
  const close = memberships.onChange(look)
  look()
  return {
    signal: left.signal,
    get clusterId() {
      return clusterId
    },
    close,
  }
}

/**
 * The one writer of the Membership in a process: makes its changes one after another. Each reads the stored Membership
 * first, because a change that starts from an older one takes back what another writer has written since. The API server
 * of a site is its folder, so the whole object has to be written.
 */
export class MembershipChanges {
  readonly #api: Pick<ClusterApi, 'read' | 'apply'>
  readonly #queue = new WriteQueue(1)

  constructor(api: Pick<ClusterApi, 'read' | 'apply'>) {
    this.#api = api
  }

  /**
   * Changes the Membership of a member. Returns the stored one from before the change; undefined if there is none. Does
   * nothing unless the cluster is a member: a concurrent leave must stay. Throws ClusterApiError.
   */
  apply(change: (latest: Membership) => Membership, signal: AbortSignal): Promise<Membership | undefined> {
    return this.write((latest) => (latest?.spec.phase === 'joined' ? change(latest) : undefined), signal)
  }

  /**
   * Writes what `plan` makes of the stored Membership (undefined: there is none), and nothing if that is undefined.
   * Returns the stored one from before the change. Throws ClusterApiError and what `plan` throws.
   */
  write(
    plan: (latest: Membership | undefined) => Membership | undefined | Promise<Membership | undefined>,
    signal: AbortSignal,
  ): Promise<Membership | undefined> {
    return this.inTurn(async () => {
      const latest = await this.#api.read('Membership', MEMBERSHIP_NAME, undefined, signal)
      const next = await plan(latest)
      if (next !== undefined) await this.#api.apply(next, signal)
      return latest
    }, signal)
  }

  /**
   * Runs a write that changes only some fields, between two others. Returns and throws what `work` does. If the signal is
   * aborted before its turn, it is left out, and the signal's reason is thrown at once: the write before it may hang.
   */
  async inTurn<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const turn = Promise.withResolvers<undefined>()
    const done = this.#queue.run(MEMBERSHIP_NAME, () => {
      signal.throwIfAborted()
      turn.resolve(undefined)
      return work()
    })
    // What is left out has been told already.
    done.catch(() => turn.resolve(undefined))
    await orAborted(turn.promise, signal)
    return done
  }
}
