/**
 * The lists of `synced`: whose absent records are really gone. They are computed when a membership has changed, told to
 * streams that are live at most once in a second, and as what has changed since to members that take that: each member
 * that completes its set after a restart would else have the whole lists sent to all.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ListChange, WatchMessage } from '../../protocol/protocol.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { LogView } from '../store/store.ts'
import { completeness } from '../members/members.ts'

export interface Lists extends ReturnType<typeof completeness> {
  /** Later ones have higher numbers. */
  readonly version: number
}

const REPORT_EVERY_MS = 1000

export class MemberLists {
  readonly #view: LogView
  readonly #clock: Clock
  readonly #onReported: () => void
  #current: Lists
  #isStale = false
  #reported: Lists
  #reportedAt: number
  #cancel: (() => void) | undefined

  /** `onReported` is called when streams that are live have something to hear. */
  constructor(view: LogView, clock: Clock, onReported: () => void) {
    this.#view = view
    this.#clock = clock
    this.#onReported = onReported
    this.#current = { version: 1, ...completeness(view) }
    this.#reported = this.#current
    this.#reportedAt = clock.monotonic() - REPORT_EVERY_MS
  }

  /** As they are now: what a stream hears first. The same object until they change. */
  get current(): Lists {
    if (this.#isStale) {
      this.#isStale = false
      const { version } = this.#current
      const now = { version, ...completeness(this.#view) }
      if (!isDeepStrictEqual(now, this.#current)) this.#current = { ...now, version: version + 1 }
    }
    return this.#current
  }

  /** What streams that are live are to know. */
  get reported(): Lists {
    return this.#reported
  }

  /** To be called when a membership has changed. */
  changed(): void {
    this.#isStale = true
    if (this.#cancel !== undefined) return
    const waitMs = this.#reportedAt + REPORT_EVERY_MS - this.#clock.monotonic()
    if (waitMs <= 0) this.#report()
    else this.#cancel = this.#clock.setTimer(waitMs, () => this.#report())
  }

  close(): void {
    this.#cancel?.()
  }

  #report(): void {
    this.#cancel = undefined
    if (this.#reported === this.current) return
    this.#reported = this.current
    this.#reportedAt = this.#clock.monotonic()
    this.#onReported()
  }
}

/** Of the lists: a message for all who have been told the same before. */
export type OwnersMessage = Extract<WatchMessage, { t: 'synced' | 'ownersChanged' }>

/** Whole, where nothing was told before. Pure. */
export function ownersMessage(from: Lists | undefined, { complete, departed }: Lists, revision: number): OwnersMessage {
  if (from === undefined) return { t: 'synced', revision, complete, departed }
  return {
    t: 'ownersChanged',
    revision,
    complete: listChange(from.complete, complete),
    departed: listChange(from.departed, departed),
  }
}

/** What has come to the second list and what has left it. Pure. */
export function listChange(before: readonly string[], after: readonly string[]): ListChange {
  const [old, now] = [new Set(before), new Set(after)]
  return { added: after.filter((one) => !old.has(one)), removed: before.filter((one) => !now.has(one)) }
}
