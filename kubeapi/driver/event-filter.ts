/**
 * Implements the limits of ClusterApi.report() for every driver: texts of limited length, and the same event only once
 * in ten minutes.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { ObjectEvent } from '../kubeapi.ts'
import { objectKey } from './object-key.ts'

/** The same event again within this time is dropped. */
export const EVENT_WINDOW_MS = 600_000
/** The limit of the field in events.k8s.io/v1. That of a reason is 128, which none of ours reaches. */
const MAX_NOTE = 1024
/** Above this number of different events the oldest are forgotten, so they may be reported again. */
const MAX_REMEMBERED = 2000

export class EventFilter {
  readonly #clock: Clock
  /** When each event was last passed, in monotonic milliseconds; oldest first. */
  readonly #reported = new Map<string, number>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Returns the event with its texts truncated to the API's limits; undefined if it was reported recently. */
  pass(event: ObjectEvent): ObjectEvent | undefined {
    const key = eventKey(event)
    const now = this.#clock.monotonic()
    const last = this.#reported.get(key)
    if (last !== undefined && now - last < EVENT_WINDOW_MS) return undefined
    this.#reported.delete(key)
    this.#reported.set(key, now)
    if (this.#reported.size > MAX_REMEMBERED) this.#forgetOldest()
    return { ...event, note: cut(event.note) }
  }

  #forgetOldest(): void {
    for (const key of this.#reported.keys()) {
      this.#reported.delete(key)
      return
    }
  }
}

/**
 * Equal for events with the same content about the same object. An object that was deleted and created again is another
 * one.
 */
function eventKey({ regarding, type, reason, note }: ObjectEvent): string {
  const { kind, name, namespace, uid } = regarding
  return JSON.stringify([kind, objectKey(name, namespace), uid ?? '', type, reason, note])
}

/** Truncates a note. The API counts bytes. */
function cut(note: string): string {
  const bytes = Buffer.from(note)
  if (bytes.length <= MAX_NOTE) return note
  return `${new TextDecoder().decode(bytes.subarray(0, MAX_NOTE - 3)).replace(/\uFFFD+$/, '')}…`
}
