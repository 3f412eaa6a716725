/**
 * A log below one prefix of an etcd, which several replicas write. Reads come from memory. A replica decides on the
 * rows that it has in memory, and a decision holds only if etcd confirms that the log had no other writes meanwhile. A
 * write compares the head within its transaction. A decision without a write reads the head after the decision, or
 * after its transaction was submitted.
 */
import { randomUUID } from 'node:crypto'
import { Backoff, type Clock } from '../../../reconcile/reconcile.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import {
  type GroupedLogInit,
  type PendingTransaction,
  WriteLayer,
  changesOf,
  closedLog,
  pendingTransaction,
} from '../grouped-log.ts'
import { LogReader, LogState } from '../log-state.ts'
import { type Change, type ChangesFrom, type RecordLog, StateError, type Transaction } from '../record-log.ts'
import { EtcdError } from './client/etcd-connection.ts'
import { EtcdFollower, ReplicaState } from './etcd-replica.ts'
import { EtcdReader, type Listing, type Seen } from './etcd-reader.ts'
import type { EtcdStore } from './etcd-store.ts'
import { EtcdWriter, type WriteOutcome } from './etcd-writer.ts'
import type { Head } from './etcd-rows.ts'
import { type OpenedStore, openStore } from './etcd-format.ts'
import { WriteRotation, WriteTurns } from './write-order.ts'

/** A group takes no more transactions once it has this many changes. */
const GROUP_CHANGES = 512
const SWEEP_ROWS = 500
/**
 * A replica that was overtaken tries again at once. After AT_ONCE tries it waits between tries, for growing random
 * times.
 */
const OVERTAKEN = { minMs: 1, maxMs: 100 }
const AT_ONCE = 4
const FIND_OUT = { minMs: 50, maxMs: 1000 }

export interface EtcdTiming {
  /** A write that etcd reports must arrive by the watch within this time. */
  readonly reachMs: number
  /** How long to look for the outcome of a write that got no answer. */
  readonly findOutMs: number
  /** How long to retry a group that other replicas overtake. */
  readonly groupMs: number
  /** How long close() waits for pending transactions. */
  readonly closeMs: number
}

const TIMING: EtcdTiming = { reachMs: 5000, findOutMs: 10_000, groupMs: 20_000, closeMs: 5000 }

export interface EtcdLogInit extends Partial<GroupedLogInit> {
  readonly store: EtcdStore
  readonly clock: Clock
  readonly logger: Logger
  /** The clusterset that the store must have. Absent: any. */
  readonly clusterset?: string
  /** False: the store must exist. Default true. */
  readonly create?: boolean
  readonly timing?: Partial<EtcdTiming>
}

/**
 * Throws StateError if the store cannot be used; the message names it. The caller that opened the store closes its
 * client.
 */
export async function openEtcdLog(init: EtcdLogInit, signal: AbortSignal): Promise<EtcdLog> {
  const { store, clusterset, create = true } = init
  const opened = await openStore(store, { clusterset, create }, signal)
  const reader = new EtcdReader(store, opened.format.epoch, init.packing)
  const listing = await store.classify(() => reader.list(undefined, signal))
  return new EtcdLog(init, opened, reader, listing)
}

interface Group {
  readonly taken: readonly PendingTransaction[]
  readonly changes: readonly Change[]
}

export class EtcdLog extends LogReader implements RecordLog {
  protected readonly madeEpoch: string
  readonly isShared = true
  readonly #init: EtcdLogInit & GroupedLogInit
  readonly #timing: EtcdTiming
  readonly #state: ReplicaState
  readonly #reader: EtcdReader
  readonly #writer: EtcdWriter
  readonly #replica = randomUUID()
  readonly #stop = new AbortController()
  /** Aborted once nothing can be written any more. The reason says why. */
  readonly #lost = new AbortController()
  readonly #following: Promise<void>
  readonly #turns: WriteTurns
  readonly #rotation: WriteRotation
  #waiting: PendingTransaction[] = []
  #working: Promise<void> | undefined
  #closing: Promise<void> | undefined
  #writes = 0
  /** The last group had changes, so the next one is expected to have some. */
  #isWriting = false
  #hasSweptStaged = false
  /** Why nothing can be written any more. */
  #broken: StateError | undefined

  /** Takes the results of openEtcdLog(). */
  constructor(init: EtcdLogInit, { format, createdAt }: OpenedStore, reader: EtcdReader, listing: Listing) {
    const rows = new LogState(init.packing)
    super(rows)
    this.madeEpoch = format.epoch
    this.#init = { keepRemoved: 10_000, ...init }
    this.#timing = { ...TIMING, ...init.timing }
    const { store, clock, logger } = init
    this.#reader = reader
    this.#writer = new EtcdWriter(store, reader, createdAt)
    this.#turns = new WriteTurns(clock, this.#replica)
    const onChanges = (changes: readonly Change[], from: ChangesFrom): void => this.reportCommit(changes, from)
    this.#rotation = new WriteRotation(clock, this.#replica)
    const onHead = (head: Head): void => this.#rotation.see(head)
    this.#state = new ReplicaState({ store, replica: this.#replica, onChanges, onHead }, rows, listing)
    const follower = new EtcdFollower({ reader, state: this.#state, turns: this.#turns, clock, logger })
    this.#following = follower.run(this.#stop.signal).catch((error: unknown) => this.#onBroken(error))
    this.#poke()
  }

  transact<T>(decide: (transaction: Transaction) => T): Promise<T> {
    if (this.#closing !== undefined) return Promise.reject(closedLog())
    const { pending, outcome } = pendingTransaction(decide)
    this.#waiting.push(pending)
    this.#poke()
    return outcome
  }

  async refresh(): Promise<void> {
    await this.transact(() => undefined)
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    const cancel = this.#init.clock.setTimer(this.#timing.closeMs, () => this.#stop.abort(closedLog()))
    await this.#working
    cancel()
    this.#stop.abort(closedLog())
    await this.#following
    this.forgetCallbacks()
  }

  #poke(): void {
    this.#working ??= this.#work().finally(() => {
      this.#working = undefined
      if (this.#waiting.length > 0) this.#poke()
    })
  }

  async #work(): Promise<void> {
    // Transactions that arrive in the same turn of the event loop are written together.
    await new Promise((resolve) => setImmediate(resolve))
    while (this.#waiting.length > 0) await this.#writeWaiting()
    while (this.#waiting.length === 0 && this.#closing === undefined && (await this.#sweep()));
  }

  /**
   * Settles the first group of the queue. If the group cannot be written, all queued transactions fail with the reason.
   */
  async #writeWaiting(): Promise<void> {
    try {
      if (this.#broken !== undefined) throw this.#broken
      await this.#writeGroup(this.#stop.signal)
    } catch (error) {
      const failed = this.#waiting
      this.#waiting = []
      const reason = this.#init.store.stateError(error)
      this.#init.observer?.failed(reason)
      for (const one of failed) one.fail(reason)
    }
    if (this.#turns.isWanted) this.#takeBackTurn()
  }

  /**
   * This replica has nothing left to write, so the others need not wait for it. Best effort: the others stop waiting
   * after a short time anyway.
   */
  #takeBackTurn(): void {
    this.#turns.done()
    this.#writer.forgetWant(this.#replica, this.#stop.signal).catch((error: unknown) => {
      this.#init.logger.debug('a turn to write is not taken back', { why: messageOf(error) })
    })
  }

  async #writeGroup(signal: AbortSignal): Promise<void> {
    const { clock, store, observer } = this.#init
    observer?.begins()
    const endMs = clock.monotonic() + this.#timing.groupMs
    const backoff = new Backoff(clock, OVERTAKEN)
    const { asOf } = this.#state
    // How many of the queued transactions had arrived when the head was last read.
    let asked = 0
    for (let overtaken = 0; ;) {
      if (overtaken > AT_ONCE) await clock.sleep(backoff.next(), signal)
      if (clock.monotonic() > endMs) {
        const text = `${store.where}: other brokers wrote first ${overtaken} times within ${this.#timing.groupMs / 1000} s`
        throw new StateError('Locked', store.where, `${text}; retrying`)
      }
      if (this.#broken !== undefined) throw this.#broken
      // A decision made before it may write would have to be made again.
      if (this.#isWriting && this.#waiting.length > 1) await this.#mayWrite(asOf, signal)
      const from = this.#state.seen
      if (from.head.staged !== undefined) {
        await this.#learn(await this.#writer.complete(this.#nextId(), from, signal))
        overtaken += 1
        continue
      }
      const group = this.#decide(asked)
      this.#isWriting = group.changes.length > 0
      if (group.changes.length === 0 && asked > 0) {
        this.#settle(group.taken)
        return
      }
      // If other replicas wrote during the wait, the decision is made again.
      if (this.#isWriting && (await this.#mayWrite(asOf, signal))) continue
      const outcome = await this.#try(group, from, signal)
      if (outcome.t === 'made') return
      overtaken += 1
      asked = group.taken.length
    }
  }

  /** Waits until this replica may write. Resolves with true if it had to wait. */
  async #mayWrite(asOf: number, signal: AbortSignal): Promise<boolean> {
    const hasWaited = await this.#turns.await(asOf, signal)
    // The other replicas wait for one that was overtaken, so it needs no place in the rotation.
    if (this.#turns.isWanted) return hasWaited
    return (await this.#rotation.await(signal)) || hasWaited
  }

  /** Writes the group and settles it. If another replica was faster, reads what that one wrote. */
  async #try({ taken, changes }: Group, from: Seen, signal: AbortSignal): Promise<WriteOutcome> {
    const isWrite = changes.length > 0
    const outcome = isWrite ? await this.#write(from, changes, signal) : await this.#confirm(from, signal)
    if (outcome.t === 'made') {
      if (isWrite) this.#turns.done()
      // The write is durable. A later failure of the store concerns the next transactions only.
      await this.#learn(outcome, changes).catch((error: unknown) => this.#onLateFailure(error))
      this.#settle(taken)
      if (isWrite) this.#init.observer?.wrote(changes.length)
      return outcome
    }
    this.#checkForward(outcome, from)
    if (outcome.wants !== undefined) this.#turns.overtaken(outcome.wants)
    await this.#learn(outcome)
    return outcome
  }

  /** Settles the first transactions of the queue. */
  #settle(taken: readonly PendingTransaction[]): void {
    this.#waiting = this.#waiting.slice(taken.length)
    for (const one of taken) one.settle()
  }

  /**
   * Decides on all queued transactions. If they change nothing together, decides on the first `asked` of them: these
   * hold without another read of the head if they change nothing by themselves. They are decided again, since a later
   * transaction may undo what one of them writes.
   */
  #decide(asked: number): Group {
    const all = this.#decided(this.#waiting)
    if (all.changes.length > 0 || asked === 0 || asked >= all.taken.length) return all
    return this.#decided(this.#waiting.slice(0, asked))
  }

  #decided(waiting: readonly PendingTransaction[]): Group {
    const { rows } = this.#state
    const group = new WriteLayer(rows)
    const taken: PendingTransaction[] = []
    for (const one of waiting) {
      if (group.size >= GROUP_CHANGES) break
      one.run(group)
      taken.push(one)
    }
    return { taken, changes: changesOf(group, rows, rows.revision) }
  }

  /** A decision without a write, such as a refusal, holds if nothing was written since `from`. */
  async #confirm(from: Seen, signal: AbortSignal): Promise<WriteOutcome> {
    const seen = await this.#reader.head(signal)
    return { t: seen.revision === from.revision ? 'made' : 'conflict', seen }
  }

  #checkForward({ seen }: WriteOutcome, from: Seen): void {
    if (seen.revision >= from.revision) return
    throw this.#init.store.gone(`its head is of revision ${seen.revision} of etcd, and was of ${from.revision}`)
  }

  async #write(from: Seen, changes: readonly Change[], signal: AbortSignal): Promise<WriteOutcome> {
    const id = this.#nextId()
    const compacted = this.#compactTo() ?? from.head.compacted
    const { clock } = this.#init
    const startedMs = clock.monotonic()
    try {
      const init = { id, from, changes, compacted, served: this.#turns.served }
      const outcome = await this.#writer.write(init, signal)
      this.#rotation.took(clock.monotonic() - startedMs)
      return outcome
    } catch (error) {
      if (!(error instanceof EtcdError && error.failure === 'unknown')) throw error
      return await this.#findOut(id, from, error, signal)
    }
  }

  /** Throws StateError (Unknown) if it cannot find out in time. */
  async #findOut(id: string, from: Seen, lost: EtcdError, signal: AbortSignal): Promise<WriteOutcome> {
    const { clock, store } = this.#init
    const endMs = clock.monotonic() + this.#timing.findOutMs
    const backoff = new Backoff(clock, FIND_OUT)
    for (;;) {
      let why = 'too many others have written since'
      try {
        const finding = await this.#writer.findOut(id, this.#nextId(), from, signal)
        if (finding.t !== 'unknown') return finding
      } catch (error) {
        if (signal.aborted) throw error
        why = messageOf(error)
        if (error instanceof EtcdError && clock.monotonic() < endMs) {
          await clock.sleep(backoff.next(), signal)
          continue
        }
      }
      const text = `${lost.message}; the result of the write is unknown: ${why}`
      throw new StateError('Unknown', store.where, text, lost)
    }
  }

  /** Takes over the outcome's state of the store: this replica's own changes, or those of others by the watch. */
  async #learn({ t, seen }: WriteOutcome, changes: readonly Change[] = []): Promise<void> {
    const { revision } = this.#state.rows
    // If other replicas wrote after this write, its changes alone do not lead to the new head.
    const isNext = (changes[0]?.revision ?? revision + 1) === revision + 1
    if (t === 'made' && isNext && seen.head.revision === revision + changes.length) this.#state.take({ seen, changes })
    await this.#reach(seen)
  }

  async #reach({ revision }: Seen): Promise<void> {
    const { store, clock } = this.#init
    const { reachMs } = this.#timing
    if (this.#state.seen.revision >= revision) return
    const late = new AbortController()
    const endpoint = store.client.endpoint
    const cancel = clock.setTimer(reachMs, () => {
      const text = `${store.where}: etcd at ${endpoint}: revision ${revision} did not come by the watch within ${reachMs / 1000} s`
      late.abort(new StateError('Unreachable', store.where, `${text}: the broker accepts no changes until then`))
      // This member of etcd may be cut off from the others.
      store.client.turnAway()
    })
    try {
      await this.#state.reach(revision, AbortSignal.any([late.signal, this.#stop.signal, this.#lost.signal]))
    } finally {
      cancel()
    }
  }

  /** As in the other drivers, compaction forgets half of the removals at once, so that it is rare. */
  #compactTo(): number | undefined {
    const { keepRemoved } = this.#init
    const { rows } = this.#state
    return rows.removedCount <= keepRemoved ? undefined : rows.compactionPoint(Math.floor(keepRemoved / 2))
  }

  /** Removes some rows of forgotten removals. Resolves with false if there are none, or if it cannot be done now. */
  async #sweep(): Promise<boolean> {
    const rows = this.#state.leftovers(SWEEP_ROWS)
    const from = this.#state.seen
    if (this.#broken !== undefined) return false
    try {
      // Once for each process: parts that a killed replica left. A live replica whose parts are removed writes them
      // again.
      if (this.#init.create !== false && !this.#hasSweptStaged) await this.#writer.sweepStaged(from, this.#stop.signal)
      this.#hasSweptStaged = true
      if (rows.length === 0) return false
      const outcome = await this.#writer.sweep(rows, from, this.#stop.signal)
      if (outcome.t === 'made') this.#state.swept(rows)
      else await this.#learn(outcome)
      return true
    } catch (error) {
      this.#init.logger.debug('cannot sweep removed rows', { why: messageOf(error) })
      return false
    }
  }

  #onLateFailure(error: unknown): void {
    this.#init.logger.debug('a write succeeded, but the store is behind', { why: messageOf(error) })
  }

  #onBroken(error: unknown): void {
    const { store, logger } = this.#init
    this.#broken = error instanceof StateError ? error : new StateError('Failed', store.where, messageOf(error), error)
    this.#lost.abort(this.#broken)
    logger.error('the store is lost', { reason: this.#broken.reason, why: this.#broken.message })
  }

  #nextId(): string {
    this.#writes += 1
    return `${this.#replica}.${this.#writes}`
  }
}
