/**
 * The Lease of one lane as this node sees it: who holds it, whether that holder is lost, and since when others may take
 * it. Only what has not changed while it could be read all the time has lapsed, so a look that failed forgets all.
 */
import type { LeaseStore, StoredLease } from '../../kubeapi/lease-store.ts'
import { laneLeaseName } from '../../model/lanes/lane-lease.ts'
import { viewOf } from './lane-lease-text.ts'
import { LapsedHolder, type LapsedHolderDeps } from './lapsed-holder.ts'
import { type LeaseView, whyOpen } from './plan-tenure.ts'

export type LeaseWatchDeps = LapsedHolderDeps & { readonly leases: LeaseStore }

export class LeaseWatch {
  readonly node: string
  readonly lane: number
  readonly #deps: LeaseWatchDeps
  readonly #holder: LapsedHolder
  #seen: { readonly lease: StoredLease | undefined; readonly view: LeaseView | undefined } | undefined
  #lost = false
  #openSinceMs: number | undefined

  constructor(deps: LeaseWatchDeps, own: { readonly node: string; readonly lane: number }) {
    this.#deps = deps
    this.node = own.node
    this.lane = own.lane
    this.#holder = new LapsedHolder(deps, own)
  }

  /** Undefined: there is none, or it was not read yet. */
  get view(): LeaseView | undefined {
    return this.#seen?.view
  }

  /** What the API had at the last look. */
  get stored(): StoredLease | undefined {
    return this.#seen?.lease
  }

  /** Why others may take it; undefined when they may not. */
  get open(): ReturnType<typeof whyOpen> {
    return whyOpen(this.view, this.#deps.clock.monotonic(), this.#lost)
  }

  /** The lane of the holder is lost, as far as this node knows. */
  get lost(): boolean {
    return this.#lost
  }

  /** Monotonic milliseconds; undefined: nobody but its holder may take it. */
  get openSinceMs(): number | undefined {
    return this.#openSinceMs
  }

  /**
   * Reads it, and asks after a holder that does not renew. `reports`: given the Lease, whether this node is the one that
   * reports such a holder to people. Throws ClusterApiError.
   */
  async look(reports: (view: LeaseView | undefined) => boolean, signal: AbortSignal): Promise<void> {
    this.notice(await this.#deps.leases.read(laneLeaseName(this.lane), signal))
    this.#lost = await this.#holder.isLost(this.view, reports(this.view))
    this.#reckonOpen()
  }

  /** What was read or written just now. */
  notice(lease: StoredLease | undefined): void {
    const nowMs = this.#deps.clock.monotonic()
    const before = this.#seen
    const same = before !== undefined && JSON.stringify(before.lease?.spec) === JSON.stringify(lease?.spec)
    const changedMs = same ? (before.view?.changedMs ?? nowMs) : nowMs
    this.#seen = { lease, view: lease === undefined ? undefined : viewOf(lease, changedMs) }
    this.#reckonOpen()
  }

  /** What was seen before says nothing about now: a silent holder may have been unable to renew as well. */
  forget(): void {
    this.#seen = undefined
    this.#openSinceMs = undefined
  }

  #reckonOpen(): void {
    const isOpen = this.open !== undefined
    this.#openSinceMs = isOpen ? (this.#openSinceMs ?? this.#deps.clock.monotonic()) : undefined
  }
}
