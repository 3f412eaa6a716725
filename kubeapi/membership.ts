/** What the Membership says, for the parts that live by it: that this cluster has joined, and that it leaves. */
import { MEMBERSHIP_NAME, type Membership } from '../model/model.ts'
import type { ClusterApi } from './cluster-api.ts'

/** The first Membership, since it was read, that is as asked for; undefined when the signal came first. */
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
  /** Aborts once, when this cluster leaves the clusterset. */
  readonly signal: AbortSignal
  /** Id of the cluster, as the Membership said last; undefined while there has been none. */
  readonly clusterId: string | undefined
  close(): void
}

/**
 * Notices that this cluster leaves: its Membership says `leaving`, or vanishes after it has been seen. A Membership
 * that was never there is no departure: the cluster may not have joined yet. `seen` is one that was there before the
 * watch.
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
