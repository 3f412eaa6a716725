/**
 * What replicas of one store say of themselves: which members have a stream open at each. Held by a lease, so that what a
 * replica said that was killed goes by itself. Nothing is decided by it; decisions are in the log.
 */
import { Backoff, type Clock, WakeableSleep, withDeadline } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import type { EtcdStore } from './etcd-store.ts'

/** What a replica says of itself in the store, as JSON. A later release may say more, and an earlier one says less. */

interface SessionValue {
  /** That have a stream open at it. */
  readonly members: readonly string[]
  /** Its host name; of a pod, the pod's name. */
  readonly host?: string
  readonly version?: string
}

/** What other replicas say is bounded by what a broker may have members. */
const MAX_VALUE_BYTES = 1024 * 1024
const MAX_TEXT = 253

export function formatSession(value: SessionValue): Buffer {
  return Buffer.from(JSON.stringify(value))
}

/** What cannot be read says nothing. Never throws. */
export function parseSession(value: Buffer): SessionValue {
  if (value.length > MAX_VALUE_BYTES) return { members: [] }
  try {
    const { members, host, version } = JSON.parse(value.toString()) as Readonly<Record<string, unknown>>
    return {
      members: Array.isArray(members) ? members.filter((one) => typeof one === 'string') : [],
      ...(isText(host) ? { host } : {}),
      ...(isText(version) ? { version } : {}),
    }
  } catch {
    return { members: [] }
  }
}

/** It is shown to people: a name and nothing else. */
function isText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= MAX_TEXT && /^[A-Za-z0-9._+-]+$/.test(value)
}

/** A replica that is gone counts for so long. */
const TTL_SECONDS = 15
const RENEW_MS = (TTL_SECONDS * 1000) / 3
const BACKOFF = { minMs: 100, maxMs: 5000 }
const END_MS = 1000
const DELETED = 1

export interface ReplicaSessionInit {
  readonly store: EtcdStore
  /** Of this process alone. */
  readonly id: string
  readonly clock: Clock
  readonly logger: Logger
  /** What it says of itself to people, beside its members. */
  readonly says?: Omit<SessionValue, 'members'>
  /** Called when this replica has become the first one. */
  readonly onFirst?: () => void
}

export class ReplicaSession {
  readonly #init: ReplicaSessionInit
  /** By replica, this one among them: the members that have a stream open there. */
  readonly #replicas = new Map<string, ReadonlySet<string>>()
  #members: readonly string[] = []
  #isSaid = false
  #wasFirst = false
  readonly #renewal: WakeableSleep

  constructor(init: ReplicaSessionInit) {
    this.#init = init
    this.#renewal = new WakeableSleep(init.clock)
  }

  /** Ids of the replicas that run, this one among them once etcd knows it. */
  get replicas(): readonly string[] {
    return [...this.#replicas.keys()].sort()
  }

  /** Whether this replica is the one that does what one of them has to do. */
  isFirst(): boolean {
    return this.replicas[0] === this.#init.id
  }

  /** Whether a member has a stream open at another replica. */
  isConnectedElsewhere(cluster: string): boolean {
    return [...this.#replicas].some(([id, members]) => id !== this.#init.id && members.has(cluster))
  }

  /** Says which members have a stream open here. */
  report(members: readonly string[]): void {
    const sorted = [...members].sort()
    if (sorted.join() === this.#members.join()) return
    this.#members = sorted
    this.#isSaid = false
    this.#renewal.wake()
  }

  /** Until the signal; then the lease ends. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([
      this.#forever(signal, 'the session of this broker is lost', (ended) => this.#hold(ended)),
      this.#forever(signal, 'sessions of other brokers are not followed', (ended) => this.#follow(ended)),
    ])
  }

  async #forever(signal: AbortSignal, what: string, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { clock, logger } = this.#init
    const backoff = new Backoff(clock, BACKOFF)
    while (!signal.aborted) {
      const startedMs = clock.monotonic()
      try {
        await work(signal)
      } catch (error) {
        if (isAborted(signal)) return
        logger.debug(what, { why: messageOf(error) })
      }
      if (clock.monotonic() - startedMs > BACKOFF.maxMs) backoff.reset()
      await clock.sleep(backoff.next(), signal).catch(() => undefined)
    }
  }

  /** Returns when the lease is over. */
  async #hold(signal: AbortSignal): Promise<void> {
    const { store, id, clock } = this.#init
    const { client, keys } = store
    const lease = 1 + Math.floor(clock.random() * (Number.MAX_SAFE_INTEGER - 1))
    await client.grantLease(lease, TTL_SECONDS, signal)
    try {
      this.#isSaid = false
      for (;;) {
        if (!this.#isSaid) {
          this.#isSaid = true
          const value = formatSession({ members: this.#members, ...this.#init.says })
          await client.put(keys.replica(id), value, { action: 'session of this broker', signal }, lease)
        }
        // Or until there is something new to say.
        await this.#renewal.sleep(RENEW_MS, signal)
        if ((await client.keepLease(lease, signal)) <= 0) return
      }
    } finally {
      // Gone by itself otherwise.
      await withDeadline(clock, END_MS, (late) => client.revokeLease(lease, late)).catch(() => undefined)
    }
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { client, keys } = this.#init.store
    const list = await client.range(keys.replicas, { action: 'list of brokers', signal })
    this.#replicas.clear()
    for (const { key, value } of list.kvs) this.#take(key, value)
    this.#reportFirst()
    const startRevision = (list.header?.revision ?? 0) + 1
    for await (const { events } of client.watch({ ...keys.replicas, startRevision }, signal)) {
      for (const { type, kv } of events) {
        if (kv === undefined) continue
        if (type === DELETED) this.#replicas.delete(keys.parseReplica(kv.key))
        else this.#take(kv.key, kv.value)
      }
      this.#reportFirst()
    }
  }

  #reportFirst(): void {
    const isFirst = this.isFirst()
    if (isFirst && !this.#wasFirst) this.#init.onFirst?.()
    this.#wasFirst = isFirst
  }

  #take(key: Buffer, value: Buffer): void {
    const id = this.#init.store.keys.parseReplica(key)
    this.#replicas.set(id, new Set(parseSession(value).members))
  }
}

/** Also where it was aborted during a call. */
function isAborted(signal: AbortSignal): boolean {
  return signal.aborted
}
