/** Watches the Membership for components that depend on it: whether this cluster has joined, and whether it leaves. */
import { MEMBERSHIP_NAME, type Membership } from '../model/model.ts'
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
