/**
 * What each replica of a store publishes about itself, such as the members with a stream open at it. A lease holds it,
 * so that the entry of a killed replica expires. Decisions never depend on it; they are in the log.
 */
import { Backoff, type Clock, WakeableSleep, orAborted, withDeadline } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import type { EtcdStore } from './etcd-store.ts'

/** The JSON that a replica publishes in the store. A later release may add fields, and an earlier one has fewer. */

interface SessionValue {
  /** Members with a stream open at the replica. */
  readonly members: readonly string[]
  /** Host name of the replica. For a pod this is the pod's name. */
  readonly host?: string
  readonly version?: string
  /** The replica gives a record only to members to which it is offered. An earlier release does not. */
  readonly keepsToOffers?: true
  /** The replica gives a record only to members that link with its owner. An earlier release does not. */
  readonly keepsToTopology?: true
  /** The replica also keeps to `via` of a topology. An earlier release reads the topology without it. */
  readonly keepsToTransit?: true
  /** The replica gives a member the labels of its join token. An earlier release ignores them. */
  readonly keepsTokenLabels?: true
  /** The replica gives members the relays that operators add. An earlier release knows those of its flags alone. */
  readonly keepsAddedRelays?: true
}

/** Bounds the value of another replica. The number of members of a broker limits its real size. */
const MAX_VALUE_BYTES = 1024 * 1024
const MAX_TEXT = 253

export function formatSession(value: SessionValue): Buffer {
  return Buffer.from(JSON.stringify(value))
}

/** Treats a value that cannot be parsed as empty. Never throws. */
export function parseSession(value: Buffer): SessionValue {
  if (value.length > MAX_VALUE_BYTES) return { members: [] }
  try {
    const found = JSON.parse(value.toString()) as Readonly<Record<string, unknown>>
    const { members, host, version, keepsToOffers, keepsToTopology, keepsToTransit } = found
    const { keepsTokenLabels, keepsAddedRelays } = found
    return {
      members: Array.isArray(members) ? members.filter((one) => typeof one === 'string') : [],
      ...(isText(host) ? { host } : {}),
      ...(isText(version) ? { version } : {}),
      ...(keepsToOffers === true ? { keepsToOffers } : {}),
      ...(keepsToTopology === true ? { keepsToTopology } : {}),
      ...(keepsToTransit === true ? { keepsToTransit } : {}),
      ...(keepsTokenLabels === true ? { keepsTokenLabels } : {}),
      ...(keepsAddedRelays === true ? { keepsAddedRelays } : {}),
    }
  } catch {
    return { members: [] }
  }
}

/** The text is shown to people, so only characters of names are allowed. */
function isText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= MAX_TEXT && /^[A-Za-z0-9._+-]+$/.test(value)
}

/** How long a replica counts after its last renewal. */
const TTL_SECONDS = 15
const RENEW_MS = (TTL_SECONDS * 1000) / 3
const BACKOFF = { minMs: 100, maxMs: 5000 }
const END_MS = 1000
const DELETED = 1

export interface ReplicaSessionInit {
  readonly store: EtcdStore
  /** Unique to this process. */
  readonly id: string
  readonly clock: Clock
  readonly logger: Logger
  /** Facts for people that the replica publishes besides its members. */
  readonly says?: Omit<SessionValue, 'members'>
  /** Called when this replica becomes the first one. */
  readonly onFirst?: () => void
  /** Called when keepToOffers() has changed. */
  readonly onOffers?: () => void
}

export class ReplicaSession {
  readonly #init: ReplicaSessionInit
  /** Members with an open stream, by replica. This replica is included. */
  readonly #replicas = new Map<string, ReadonlySet<string>>()
  /** Other replicas that may give records to members to which they are not offered. */
  readonly #careless = new Set<string>()
  /** Hosts, or ids, of other replicas that give members records of all others, whatever the topology is. */
  readonly #withoutTopology = new Map<string, string>()
  readonly #listed = Promise.withResolvers<undefined>()
  #isListed = false
  #kept = false
  #members: readonly string[] = []
  #isSaid = false
  #wasFirst = false
  readonly #renewal: WakeableSleep

  constructor(init: ReplicaSessionInit) {
    this.#init = init
    this.#renewal = new WakeableSleep(init.clock)
  }

  /** Ids of the replicas that run. This one is included once etcd has its entry. */
  get replicas(): readonly string[] {
    return [...this.#replicas.keys()].sort()
  }

  /** Whether this replica is the one that does the work that only one of them should do. */
  isFirst(): boolean {
    return this.replicas[0] === this.#init.id
  }

  /** Whether a member has a stream open at another replica. */
  isConnectedElsewhere(cluster: string): boolean {
    return [...this.#replicas].some(([id, members]) => id !== this.#init.id && members.has(cluster))
  }

  /** Whether all replicas give records only to members to which they are offered. False until they are known. */
  keepToOffers(): boolean {
    return this.#isListed && this.#careless.size === 0
  }

  /** Other replicas that give members records of all others, whatever the topology is: their hosts, or their ids. */
  withoutTopology(): readonly string[] {
    return [...this.#withoutTopology.values()].sort()
  }

  /** Resolves once the other replicas are known. Rejects with the signal's reason. */
  async whenListed(signal: AbortSignal): Promise<void> {
    await orAborted(this.#listed.promise, signal)
  }

  /** Publishes which members have a stream open here. */
  report(members: readonly string[]): void {
    const sorted = [...members].sort()
    if (sorted.join() === this.#members.join()) return
    this.#members = sorted
    this.#isSaid = false
    this.#renewal.wake()
  }

  /** Runs until the signal, then ends the lease. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([
      this.#forever(signal, 'the session of this broker is lost', (ended) => this.#hold(ended)),
      this.#forever(signal, 'cannot watch the sessions of other brokers', (ended) => this.#follow(ended)),
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

  /** Returns when the lease has expired. */
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
        // Sleeps until the renewal is due, or until there is something new to publish.
        await this.#renewal.sleep(RENEW_MS, signal)
        if ((await client.keepLease(lease, signal)) <= 0) return
      }
    } finally {
      // If this fails, the lease expires by itself.
      await withDeadline(clock, END_MS, (late) => client.revokeLease(lease, late)).catch(() => undefined)
    }
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { client, keys } = this.#init.store
    const list = await client.range(keys.replicas, { action: 'list of brokers', signal })
    this.#replicas.clear()
    this.#careless.clear()
    this.#withoutTopology.clear()
    for (const { key, value } of list.kvs) this.#take(key, value)
    this.#isListed = true
    this.#listed.resolve(undefined)
    this.#reportFirst()
    this.#reportOffers()
    const startRevision = (list.header?.revision ?? 0) + 1
    for await (const { events } of client.watch({ ...keys.replicas, startRevision }, signal)) {
      for (const { type, kv } of events) {
        if (kv === undefined) continue
        if (type === DELETED) this.#drop(keys.parseReplica(kv.key))
        else this.#take(kv.key, kv.value)
      }
      this.#reportFirst()
      this.#reportOffers()
    }
  }

  #reportFirst(): void {
    const isFirst = this.isFirst()
    if (isFirst && !this.#wasFirst) this.#init.onFirst?.()
    this.#wasFirst = isFirst
  }

  #reportOffers(): void {
    const keep = this.keepToOffers()
    if (keep === this.#kept) return
    this.#kept = keep
    this.#init.onOffers?.()
  }

  #take(key: Buffer, value: Buffer): void {
    const id = this.#init.store.keys.parseReplica(key)
    const { members, keepsToOffers, keepsToTopology, host } = parseSession(value)
    this.#replicas.set(id, new Set(members))
    if (keepsToOffers === true || id === this.#init.id) this.#careless.delete(id)
    else this.#careless.add(id)
    if (keepsToTopology === true || id === this.#init.id) this.#withoutTopology.delete(id)
    else this.#withoutTopology.set(id, host ?? id)
  }

  #drop(id: string): void {
    this.#replicas.delete(id)
    this.#careless.delete(id)
    this.#withoutTopology.delete(id)
  }
}

/** Reads the signal again: the compiler assumes that it is unchanged since the last check. */
function isAborted(signal: AbortSignal): boolean {
  return signal.aborted
}
