/** A clusterset without network or disk. It imitates the broker in a few lines, and gives each member a BrokerLink. */
import { isDeepStrictEqual } from 'node:util'
import type { BrokerLink, LinkState, PublishState } from '../../agent/link/broker-link.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { MemberStatus } from '../../model/member-status.ts'
import type { ClusterSpec } from '../../model/objects.ts'
import type { ReplicaChange } from '../../protocol/replica/record-replica.ts'
import { type MemberRecord, type RecordKey, type StoredRecord, recordKeyText } from '../../model/records.ts'

export class FakeClusterset {
  readonly links: FakeLink[] = []
  records = new Map<string, StoredRecord>()
  complete = new Set<string>([''])
  departed = new Set<string>()
  /** Members without a connection to the broker, and for how many milliseconds. */
  silent: ReadonlyMap<string, number> | undefined = new Map()
  /** Whether members can reach the broker. */
  online = true
  /** Returns the reason why a record is refused; undefined accepts it. */
  admit: (cluster: string, record: MemberRecord) => string | undefined = () => undefined
  #revision = 0
  readonly #ips = new Map<string, string>()

  join(spec: Omit<ClusterSpec, 'index' | 'serviceCIDRs' | 'labels'>): void {
    const whole = { ...spec, index: spec.id.length, serviceCIDRs: [], labels: {} }
    this.put(
      { cluster: spec.id as ClusterId, kind: 'Cluster', namespace: '', name: spec.id },
      { kind: 'Cluster', spec: whole },
    )
  }

  put(key: RecordKey, body: StoredRecord['body'], createdAtMs?: number): void {
    this.#revision += 1
    const before = this.records.get(recordKeyText(key))
    const same = before?.body.kind === 'ServiceExport' && body.kind === 'ServiceExport' && before.body.uid === body.uid
    const born = createdAtMs ?? (same ? before.createdAtMs : this.#revision)
    this.records.set(recordKeyText(key), { key, revision: this.#revision, createdAtMs: born, body })
    if (body.kind === 'ServiceExport' || body.kind === 'ClusterSetIP') this.#allocate(key)
  }

  remove(key: RecordKey): void {
    this.records.delete(recordKeyText(key))
    const left = [...this.records.values()].some(
      (one) => one.key.kind === 'ServiceExport' && one.key.namespace === key.namespace && one.key.name === key.name,
    )
    if (key.kind === 'ServiceExport' && !left) {
      this.records.delete(recordKeyText({ ...key, cluster: '', kind: 'ClusterSetIP' }))
    }
  }

  /** Replaces the whole set of a member, as a declaration does. */
  declare(cluster: string, desired: ReadonlyMap<string, MemberRecord>): Map<string, PublishState> {
    const states = new Map<string, PublishState>()
    const keep = new Set<string>()
    for (const [at, record] of desired) {
      const message = this.admit(cluster, record)
      if (message !== undefined) {
        states.set(at, { t: 'refused', field: 'record', reason: 'InvalidValue', message })
        continue
      }
      const key: RecordKey = {
        cluster: cluster as ClusterId,
        kind: record.body.kind,
        namespace: record.namespace,
        name: record.name,
      }
      keep.add(recordKeyText(key))
      states.set(at, { t: 'stored' })
      if (this.records.get(recordKeyText(key))?.body !== record.body) this.put(key, record.body)
    }
    for (const { key } of [...this.records.values()]) {
      const isBrokers = key.kind === 'Cluster' || key.kind === 'MemberStatus'
      if (key.cluster === cluster && !isBrokers && !keep.has(recordKeyText(key))) this.remove(key)
    }
    this.complete.add(cluster)
    return states
  }

  /** Stores the status that a member reports about itself. */
  report(cluster: string, status: MemberStatus): void {
    const key: RecordKey = { cluster: cluster as ClusterId, kind: 'MemberStatus', namespace: '', name: cluster }
    const body = { kind: 'MemberStatus' as const, ...status }
    if (!isDeepStrictEqual(this.records.get(recordKeyText(key))?.body, body)) this.put(key, body)
  }

  link(cluster: string): FakeLink {
    const link = new FakeLink(this, cluster)
    this.links.push(link)
    return link
  }

  /** Brings every connected link up to date. */
  spread(): void {
    if (!this.online) return
    for (const link of this.links) link.receive()
  }

  /** Makes the broker lose its records: no member has declared its set in the new epoch. */
  forget(): void {
    for (const { key } of [...this.records.values()]) {
      if (key.cluster !== '' && key.kind !== 'Cluster') this.records.delete(recordKeyText(key))
    }
    this.complete = new Set()
  }

  #allocate({ namespace, name }: RecordKey): void {
    const at = `${namespace}/${name}`
    const ip = this.#ips.get(at) ?? `245.0.0.${this.#ips.size + 1}`
    this.#ips.set(at, ip)
    const key: RecordKey = { cluster: '', kind: 'ClusterSetIP', namespace, name }
    if (this.records.has(recordKeyText(key))) return
    this.records.set(recordKeyText(key), {
      key,
      revision: this.#revision,
      createdAtMs: 0,
      body: { kind: 'ClusterSetIP', ips: [ip] },
    })
  }
}

export class FakeLink implements BrokerLink {
  readonly #set: FakeClusterset
  readonly #cluster: string
  readonly #published = new Set<(keys: readonly string[] | undefined) => void>()
  readonly #watched = new Set<(changes: readonly ReplicaChange[]) => void>()
  #desired: ReadonlyMap<string, MemberRecord> | undefined
  #status: MemberStatus | undefined
  /** Whether the agent reports a status, which an agent of an earlier release does not. */
  reports = true
  #states = new Map<string, PublishState>()
  #copy: readonly StoredRecord[] = []
  #answered = false
  #running = false
  synced = false
  confirmed = false
  complete: ReadonlySet<string> = new Set()
  departed: ReadonlySet<string> = new Set()

  constructor(set: FakeClusterset, cluster: string) {
    this.#set = set
    this.#cluster = cluster
  }

  state(): LinkState {
    const t = this.#running ? 'live' : 'closed'
    return { publish: t, watch: t, since: '2026-11-25T08:00:00Z', addresses: 1, failing: 0 }
  }

  readonly publisher = ((self: FakeLink) => ({
    get answered() {
      return self.#answered
    },
    setDesired: (records: ReadonlyMap<string, MemberRecord>) => {
      self.#desired = records
      self.send()
    },
    setFacts: () => undefined,
    setStatus: (status: MemberStatus) => {
      self.#status = status
      self.send()
    },
    state: (key: string): PublishState => self.#states.get(key) ?? { t: 'pending' },
    onChange: (listener: (keys: readonly string[] | undefined) => void) => {
      self.#published.add(listener)
      return () => void self.#published.delete(listener)
    },
  }))(this)

  readonly replica = ((self: FakeLink) => ({
    get synced() {
      return self.synced
    },
    get confirmed() {
      return self.confirmed
    },
    get complete() {
      return self.complete
    },
    get departed() {
      return self.departed
    },
    exported: undefined,
    holds: () => true,
    onExported: () => () => undefined,
    records: () => self.#copy,
    onChange: (listener: (changes: readonly ReplicaChange[]) => void) => {
      self.#watched.add(listener)
      return () => void self.#watched.delete(listener)
    },
  }))(this)

  readonly #heard = new Set<() => void>()
  readonly contact = {
    silent: () => (this.#set.online ? this.#set.silent : undefined),
    onChange: (listener: () => void) => {
      this.#heard.add(listener)
      return () => void this.#heard.delete(listener)
    },
  }
  /** Calls the listeners of `contact`, as a report of silent members does. */
  onReason(): void {
    for (const listener of this.#heard) listener()
  }

  setInterest(): void {
    // This broker acts like one of an earlier release, which sends everything.
  }

  problem(): string | undefined {
    return this.#set.online ? undefined : 'the broker cannot be reached'
  }

  forgotten = false
  forget(): Promise<void> {
    this.forgotten = true
    return Promise.resolve()
  }

  /** Fills the replica as from the disk of an earlier process, with the present records of the clusterset. */
  restore(): void {
    this.#copy = [...this.#set.records.values()]
    this.synced = true
    this.complete = new Set(this.#set.complete)
    this.departed = new Set(this.#set.departed)
  }

  send(): void {
    if (this.#desired === undefined || !this.#set.online || !this.#running) return
    const before = this.#states
    this.#states = this.#set.declare(this.#cluster, this.#desired)
    if (this.reports && this.#status !== undefined) this.#set.report(this.#cluster, this.#status)
    const changed = [...this.#states].filter(([key, state]) => !isDeepStrictEqual(before.get(key), state))
    const keys = this.#answered ? changed.map(([key]) => key) : undefined
    this.#answered = true
    if (keys === undefined || keys.length > 0) for (const listener of this.#published) listener(keys)
    this.#set.spread()
  }

  receive(): void {
    if (!this.#running) return
    const copy = [...this.#set.records.values()]
    // The records of an owner whose set is not complete stay in the copy.
    const certain = new Set([...this.#set.complete, ...this.#set.departed])
    const present = new Set(copy.map(({ key }) => recordKeyText(key)))
    const kept = this.#copy.filter(({ key }) => !present.has(recordKeyText(key)) && !certain.has(key.cluster))
    const changes = changesOf(this.#copy, [...copy, ...kept])
    this.#copy = [...copy, ...kept]
    this.synced = true
    this.confirmed = true
    this.complete = new Set(this.#set.complete)
    this.departed = new Set(this.#set.departed)
    for (const listener of this.#watched) listener(changes)
  }

  /** The identity of this member never changes. */
  keepIdentity(): Promise<void> {
    return Promise.resolve()
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#running = true
    if (this.#set.online) this.receive()
    this.send()
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve()
      signal.addEventListener('abort', () => resolve(), { once: true })
    })
    this.#running = false
  }
}

function changesOf(before: readonly StoredRecord[], now: readonly StoredRecord[]): ReplicaChange[] {
  const old = new Map(before.map((record) => [recordKeyText(record.key), record]))
  const changes: ReplicaChange[] = []
  for (const record of now) {
    const previous = old.get(recordKeyText(record.key))
    old.delete(recordKeyText(record.key))
    if (previous !== record) changes.push({ t: 'put', record, previous })
  }
  return [...changes, ...[...old.values()].map((record) => ({ t: 'removed' as const, record }))]
}
