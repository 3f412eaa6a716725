/**
 * Slots for the open watches of each member: its quota of streams, less one for the stream that publishes. A watch
 * beyond that is refused, except that the first watch of another connection takes the slot of the oldest. So a broken
 * connection of its own never locks a returning member out, and a member that opens many watches only affects itself.
 */
import type { ClusterId, MemberQuota } from '../../model/model.ts'
import { type Peer, RefusedError } from '../../protocol/protocol.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { LogView } from '../store/store.ts'
import { isOfMembership, requireMember } from '../identity/identity.ts'
import { quotaOf } from '../records/records.ts'

export class OpenWatch {
  readonly peer: Peer
  /** Why the watch lost its slot, if it has. */
  ended: RefusedError | undefined
  /** Wakes the watch if it waits for news. */
  wake: () => void = () => undefined
  /** Whether its membership may have changed. */
  isUnchecked = true
  /** Ends the stream even if its peer reads nothing. */
  readonly end: ((reason: Error) => void) | undefined
  constructor(peer: Peer, end?: (reason: Error) => void) {
    this.peer = peer
    this.end = end
  }
}

export interface WatchPlacesDeps {
  readonly log: LogView
  readonly clock: Pick<Clock, 'now'>
}

export class WatchPlaces {
  readonly #deps: WatchPlacesDeps
  /** See quotaOf(). */
  readonly #fallback: MemberQuota
  /** Open watches of each member, oldest first. */
  readonly #open = new Map<ClusterId, Set<OpenWatch>>()

  constructor(deps: WatchPlacesDeps, fallback: MemberQuota) {
    this.#deps = deps
    this.#fallback = fallback
  }

  /**
   * Counts watches of the current membership only: a peer that does not read keeps its stream open beyond an eviction.
   */
  count(cluster: ClusterId): number {
    return this.#counted(cluster).length
  }

  /** Throws RefusedError if the quota has no room. */
  open(peer: Peer, end?: (reason: Error) => void): OpenWatch {
    const { cluster } = peer
    const { streams } = quotaOf(this.#deps.log, cluster, this.#fallback)
    const counted = this.#counted(cluster)
    if (counted.length >= streams - 1) this.#makeRoom(peer, counted, streams)
    const watch = new OpenWatch({ ...peer }, end)
    this.#open.set(cluster, (this.#open.get(cluster) ?? new Set()).add(watch))
    return watch
  }

  /** Ends the watches of peers that are no longer members, of these clusters or of all. */
  endDeparted(clusters: Iterable<ClusterId> = this.#open.keys()): void {
    const { log, clock } = this.#deps
    for (const { peer, end } of [...clusters].flatMap((cluster) => [...(this.#open.get(cluster) ?? [])])) {
      try {
        requireMember(log, peer, clock.now())
      } catch (error) {
        if (!(error instanceof RefusedError)) throw error
        end?.(error)
      }
    }
  }

  close(watch: OpenWatch): void {
    const { cluster } = watch.peer
    const open = this.#open.get(cluster)
    open?.delete(watch)
    if (open?.size === 0) this.#open.delete(cluster)
  }

  /** Includes watches of a membership that has ended. */
  of(cluster: ClusterId): Iterable<OpenWatch> {
    return this.#open.get(cluster) ?? []
  }

  all(): OpenWatch[] {
    return [...this.#open.values()].flatMap((watches) => [...watches])
  }

  #makeRoom({ cluster, connection }: Peer, counted: readonly OpenWatch[], streams: number): void {
    const isKnown = connection === undefined || counted.some(({ peer }) => peer.connection === connection)
    const [oldest] = isKnown ? [] : counted
    if (oldest === undefined) {
      const text = `watch: the quota of cluster "${cluster}" is ${streams} streams, one of them to publish`
      throw new RefusedError('QuotaStreams', 'watch', text)
    }
    this.close(oldest)
    const text = `watch: a newer connection of cluster "${cluster}" has taken over; if this repeats, two sites use one identity`
    oldest.ended = new RefusedError('StreamReplaced', 'watch', text)
    oldest.wake()
  }

  #counted(cluster: ClusterId): OpenWatch[] {
    const { log, clock } = this.#deps
    const nowMs = clock.now()
    return [...(this.#open.get(cluster) ?? [])].filter(({ peer }) => isOfMembership(log, peer, nowMs))
  }
}
