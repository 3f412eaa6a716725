/**
 * The lists of `synced`: owners whose missing records are really gone. They are computed when a membership has changed
 * and sent to live streams at most once a second. Members that accept it get only the changes. Otherwise, after a
 * restart, each member that completes its set would cause the whole lists to be sent to all members.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ListChange, WatchMessage } from '../../protocol/protocol.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { LogView } from '../store/store.ts'
import { completeness } from '../members/members.ts'

export interface Lists extends ReturnType<typeof completeness> {
  /** Later lists have higher numbers. */
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

  /** `onReported` is called when live streams have lists to send. */
  constructor(view: LogView, clock: Clock, onReported: () => void) {
    this.#view = view
    this.#clock = clock
    this.#onReported = onReported
    this.#current = { version: 1, ...completeness(view) }
    this.#reported = this.#current
    this.#reportedAt = clock.monotonic() - REPORT_EVERY_MS
  }

  /** The lists as they are now, for the start of a stream. The same object until they change. */
  get current(): Lists {
    if (this.#isStale) {
      this.#isStale = false
      const { version } = this.#current
      const now = { version, ...completeness(this.#view) }
      if (!isDeepStrictEqual(now, this.#current)) this.#current = { ...now, version: version + 1 }
    }
    return this.#current
  }

  /** The lists that live streams are to have. */
  get reported(): Lists {
    return this.#reported
  }

  /** The caller runs it when a membership has changed. */
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

/** A message about the lists, for all streams that were sent the same lists before. */
export type OwnersMessage = Extract<WatchMessage, { t: 'synced' | 'ownersChanged' }>

/** The whole lists if none were sent before. Pure. */
export function ownersMessage(from: Lists | undefined, { complete, departed }: Lists, revision: number): OwnersMessage {
  if (from === undefined) return { t: 'synced', revision, complete, departed }
  return {
    t: 'ownersChanged',
    revision,
    complete: listChange(from.complete, complete),
    departed: listChange(from.departed, departed),
  }
}

/** The entries that were added to the second list and those that were removed. Pure. */
export function listChange(before: readonly string[], after: readonly string[]): ListChange {
  const [old, now] = [new Set(before), new Set(after)]
  return { added: after.filter((one) => !old.has(one)), removed: before.filter((one) => !now.has(one)) }
}
