/**
 * Counts how sampled calls end. The kernel logs the first FIN or reset of those that it follows (plan-flows-table.ts).
 * A call without one, of which connection tracking has no entry any more, ended by a time-out; so did a call without an
 * answer, whether its entry was found or not. An entry that is closing as the kernel forgets it had a log that was lost:
 * it does not count. Single entries are looked up: events of connection tracking would come for each call of the node.
 * Bounded.
 */
import type { AnswerEnds, CallLookup, EntryState, LoggedPacket } from '../../kernel/nfnetlink/nfnetlink.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type CallBegun, keyOf, keyOfAnswer } from './call-samples.ts'
import { FOLLOW_HOURS, HEARD_SECONDS, MAX_FOLLOWED } from './plan-flows-table.ts'

/** Entries that are looked up in one round, the longest unseen first. */
export const MOST_LOOKUPS = 48
const LOOK_EACH_MS = 30_000
/** The kernel may forget its mark a little earlier than this process: neither end would be seen then. */
const FOLLOW_MS = FOLLOW_HOURS * 3_600_000 - 300_000

/** `timed-out`: by connection tracking. `other`: closed, reset or refused; or UDP that was answered. */
export type CallEnd = 'timed-out' | 'other'

interface Followed {
  readonly begun: CallBegun
  readonly ends: AnswerEnds
  readonly sinceMs: number
  readonly isAnswered: boolean
  /** Connection tracking had an entry of it. */
  readonly isSeen: boolean
  /** An end of the connection has closed it, though no log of that came yet. */
  readonly isClosing: boolean
  readonly dueMs: number
}

export class CallEnds {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #onEnd: (call: CallBegun, end: CallEnd, wasAnswered: boolean) => void
  /** By CallBegun.key; the one that was looked up longest ago first. */
  readonly #followed = new Map<string, Followed>()

  constructor(clock: Pick<Clock, 'monotonic'>, onEnd: (call: CallBegun, end: CallEnd, wasAnswered: boolean) => void) {
    this.#clock = clock
    this.#onEnd = onEnd
  }

  get size(): number {
    return this.#followed.size
  }

  /** Without room a call does not count at all, whichever way it would end. */
  begun(call: CallBegun): void {
    const { key, outcome, protocol } = call
    // Its ports belong to a new call, so the one before has ended, unknown how.
    this.#followed.delete(key)
    if (this.#followed.size >= MAX_FOLLOWED) return
    if (outcome === 'refused' || (outcome === 'answered' && protocol === 'udp')) this.#onEnd(call, 'other', true)
    else if (outcome !== 'answered' && (protocol === 'tcp' || protocol === 'udp')) this.#follow(call)
  }

  /** Takes a packet of NFLOG_GROUP_FLOWS, after CallSamples.take(). */
  take(packet: LoggedPacket): void {
    const { prefix } = packet
    if (prefix === 'closed') {
      this.#ended(keyOf(packet), 'other')
      this.#ended(keyOfAnswer(packet), 'other')
    } else if (prefix === 'answered' || prefix === 'followed' || prefix === 'refused') {
      this.#answered(keyOfAnswer(packet), prefix)
    }
  }

  /** Forgets all: the kernel has a new table, which does not know them. */
  clear(): void {
    this.#followed.clear()
  }

  /** Looks up those that are due. Throws KernelError. */
  async look(table: CallLookup, signal: AbortSignal): Promise<void> {
    const nowMs = this.#clock.monotonic()
    for (const [key, { sinceMs, isAnswered, isSeen }] of this.#followed) {
      if (isAnswered && nowMs - sinceMs >= FOLLOW_MS) this.#followed.delete(key)
      if (!isAnswered && !isSeen && nowMs - sinceMs >= HEARD_SECONDS * 1000) this.#ended(key, 'timed-out')
    }
    const due: Followed[] = []
    for (const one of this.#followed.values()) {
      if (due.length >= MOST_LOOKUPS) break
      if (one.dueMs <= nowMs) due.push(one)
    }
    if (due.length === 0) return
    const states = await table.states(
      due.map(({ ends }) => ends),
      signal,
    )
    for (const [i, one] of due.entries()) {
      // It may have ended meanwhile.
      if (this.#followed.get(one.begun.key) === one) this.#looked(one, states[i])
    }
  }

  #looked(one: Followed, state: EntryState | undefined): void {
    const { begun, isAnswered, isSeen, isClosing, sinceMs } = one
    const nowMs = this.#clock.monotonic()
    if (state !== undefined) {
      this.#followed.delete(begun.key)
      // The log of a late answer was lost, and with it that of the end.
      if (!isAnswered && state === 'answered') return
      const found = { isSeen: true, isClosing: isClosing || state === 'closing' }
      this.#followed.set(begun.key, { ...one, ...found, dueMs: nowMs + LOOK_EACH_MS })
      return
    }
    if (isSeen && !isClosing) {
      this.#ended(begun.key, 'timed-out')
      return
    }
    this.#followed.delete(begun.key)
    // The entry may have other addresses, or be in another zone: then the end of an answered call cannot be known. One
    // without an answer has none until the kernel no longer listens for it. A log of the end may also have been lost.
    if (!isAnswered && !isSeen) this.#followed.set(begun.key, { ...one, dueMs: sinceMs + HEARD_SECONDS * 1000 })
  }

  #follow(call: CallBegun): void {
    const { key, call: addresses, protocol, port, sourcePort, outcome } = call
    const nowMs = this.#clock.monotonic()
    this.#followed.set(key, {
      begun: call,
      ends: {
        protocol: protocol === 'tcp' ? 'TCP' : 'UDP',
        server: { address: addresses.server, port },
        client: { address: addresses.client, port: sourcePort },
      },
      ...{ sinceMs: nowMs, isAnswered: outcome === 'followed', isSeen: false, isClosing: false, dueMs: nowMs },
    })
  }

  /** A late answer. */
  #answered(key: string | undefined, prefix: 'answered' | 'followed' | 'refused'): void {
    const one = key === undefined ? undefined : this.#followed.get(key)
    if (key === undefined || one === undefined || one.isAnswered) return
    this.#followed.delete(key)
    if (prefix === 'followed') this.#follow({ ...one.begun, outcome: 'followed' })
    else if (prefix === 'refused' || one.ends.protocol === 'UDP') this.#onEnd(one.begun, 'other', true)
  }

  #ended(key: string | undefined, end: CallEnd): void {
    const one = key === undefined ? undefined : this.#followed.get(key)
    if (key === undefined || one === undefined) return
    this.#followed.delete(key)
    this.#onEnd(one.begun, end, one.isAnswered)
  }
}
