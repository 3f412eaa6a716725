/**
 * Datagrams that wait for a stream. A stream that is slower than its senders must not become a long queue, because
 * connections inside a lane would see seconds of delay instead of loss. So a datagram that has waited for too long is
 * dropped, and so is the oldest one when there is no more room.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import { type Datagram, MAX_FRAME_BYTES, encodeFrame, entryBytes } from './frames.ts'

export interface DatagramQueueInit {
  readonly clock: Pick<Clock, 'monotonic'>
  /** Sends a frame. `onSent` is to be called when the system has taken it. */
  readonly send: (frame: Buffer, onSent: () => void) => void
  /** Called with the number of datagrams that were dropped. */
  readonly onDropped?: (count: number) => void
}

/** A datagram that has waited for so long is dropped. */
export const MAX_WAIT_MS = 50
/** Octets that wait, at most. */
export const MAX_WAITING_BYTES = 1 << 20
/** Octets that were handed to the system and are not yet taken: little, because nothing there can be dropped. */
const MAX_IN_FLIGHT_BYTES = 256 << 10

interface Waiting extends Datagram {
  readonly sinceMs: number
}

export class DatagramQueue {
  readonly #init: DatagramQueueInit
  #waiting: Waiting[] = []
  /** Index of the oldest one that still waits. */
  #first = 0
  #bytes = 0
  #inFlight = 0
  #isDue = false
  #isClosed = false

  constructor(init: DatagramQueueInit) {
    this.#init = init
  }

  /** The octets must not change later. */
  push(end: string, bytes: Buffer): void {
    if (this.#isClosed) return
    this.#waiting.push({ end, bytes, sinceMs: this.#init.clock.monotonic() })
    this.#bytes += entryBytes(bytes)
    let dropped = 0
    while (this.#bytes > MAX_WAITING_BYTES) {
      this.#shift()
      dropped++
    }
    if (dropped > 0) this.#init.onDropped?.(dropped)
    // All datagrams that arrive in one turn of the event loop share a frame.
    if (this.#isDue) return
    this.#isDue = true
    setImmediate(() => {
      this.#isDue = false
      this.#flush()
    })
  }

  close(): void {
    this.#isClosed = true
    this.#waiting = []
    this.#first = 0
    this.#bytes = 0
  }

  #flush(): void {
    const oldestMs = this.#init.clock.monotonic() - MAX_WAIT_MS
    let dropped = 0
    for (let one = this.#waiting[this.#first]; one !== undefined && one.sinceMs < oldestMs;) {
      this.#shift()
      dropped++
      one = this.#waiting[this.#first]
    }
    if (dropped > 0) this.#init.onDropped?.(dropped)
    while (this.#waiting.length > this.#first && this.#inFlight < MAX_IN_FLIGHT_BYTES) this.#sendOne()
  }

  #sendOne(): void {
    const datagrams: Datagram[] = []
    let length = 1
    for (let one = this.#waiting[this.#first]; one !== undefined; one = this.#waiting[this.#first]) {
      length += entryBytes(one.bytes)
      if (length > MAX_FRAME_BYTES) break
      datagrams.push(one)
      this.#shift()
    }
    const frame = encodeFrame({ t: 'datagrams', datagrams })
    this.#inFlight += frame.length
    this.#init.send(frame, () => {
      this.#inFlight -= frame.length
      if (this.#waiting.length > this.#first) this.#flush()
    })
  }

  #shift(): void {
    const one = this.#waiting[this.#first]
    if (one === undefined) return
    this.#first++
    this.#bytes -= entryBytes(one.bytes)
    // The array moves only when most of it is gone.
    if (this.#first < 1024 && this.#first < this.#waiting.length) return
    this.#waiting = this.#waiting.slice(this.#first)
    this.#first = 0
  }
}
