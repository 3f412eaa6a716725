/** What ClusterApi.report() promises in every driver: bounded texts, and the same thing said once in ten minutes. */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { ObjectEvent } from '../kubeapi.ts'
import { objectKey } from './object-key.ts'

/** The same event again within this time is dropped. */
export const EVENT_WINDOW_MS = 600_000
/** events.k8s.io/v1: the limit of the field. Of a reason it is 128, which no code of ours reaches. */
const MAX_NOTE = 1024
/** Beyond this many different events the oldest are forgotten, so they may be reported again. */
const MAX_REMEMBERED = 2000

export class EventFilter {
  readonly #clock: Clock
  /** When each event was last let through, monotonic milliseconds; oldest first. */
  readonly #reported = new Map<string, number>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * The event as it may be reported, its texts cut to the API's limits; undefined when it was reported a short time
   * ago.
   */
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

/** Equal for events that say the same of the same object. A re-created object is another one. */
function eventKey({ regarding, type, reason, note }: ObjectEvent): string {
  const { kind, name, namespace, uid } = regarding
  return JSON.stringify([kind, objectKey(name, namespace), uid ?? '', type, reason, note])
}

/** The API counts bytes. */
function cut(note: string): string {
  const bytes = Buffer.from(note)
  if (bytes.length <= MAX_NOTE) return note
  return `${new TextDecoder().decode(bytes.subarray(0, MAX_NOTE - 3)).replace(/\uFFFD+$/, '')}…`
}
