/** A broker on a real database and a real CA in its own folder, with a clock that only the test moves. */
import { join } from 'node:path'
import type { Test } from 'tap'
import { Broker } from '../../../broker/broker.ts'
import type { AuditSink } from '../../../broker/audit/audit-sink.ts'
import type { Replicas } from '../../../broker/members/contact.ts'
import { AuditTrail } from '../../../broker/audit/audit-trail.ts'
import { CertificateAuthority } from '../../../broker/identity/certificate-authority.ts'
import { type BrokerConfig, DEFAULT_BROKER_CONFIG } from '../../../broker/config/broker-config.ts'
import { openSqliteLog } from '../../../broker/store/sqlite/sqlite-log.ts'
import type { RecordLog } from '../../../broker/store/record-log.ts'
import { brokerMetrics } from '../../../broker/config/broker-metrics.ts'
import { fixSettings } from '../../../broker/store/open-store.ts'
import { type BrokerStore, openBrokerStore } from '../../support/broker-store.ts'
import { DATABASE_FILE } from '../../../broker/store/state-directory.ts'
import type { ClusterId } from '../../../model/ids.ts'
import type { MemberStatus } from '../../../model/member-status.ts'
import {
  type EndpointSliceBody,
  type MemberRecord,
  type ServiceExportBody,
  recordKeyText,
} from '../../../model/records.ts'
import type {
  ClusterFacts,
  JoinRequest,
  JoinResponse,
  ListChange,
  Peer,
  PublishMessage,
  PublishReply,
  PublishSession,
  WatchMessage,
  WatchRequest,
} from '../../../protocol/broker-api.ts'
import { contentHash, memberKey, memberKeyText, setHash } from '../../../protocol/codec/content-hash.ts'
import { BACKDATE_MS, readCertificate } from '../../../protocol/identity/certificates.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import { parseJoinToken } from '../../../protocol/identity/token.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { decodeWatchMessage, encodeWatchMessage } from '../../../protocol/codec/messages-codec.ts'
import { decodeRecordEvent } from '../../../protocol/codec/records-codec.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { type DescribedMetrics, createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

export interface Harness {
  readonly broker: Broker
  readonly log: RecordLog
  readonly clock: FakeClock
  readonly logger: CapturingLogger
  readonly tokens: BrokerStore
  readonly metrics: DescribedMetrics
  readonly stateDir: string
  /** The audit trail without its loop; flush() writes the lines. */
  readonly audit: AuditTrail
  stop(): Promise<void>
}

export interface HarnessInit {
  readonly config?: Partial<BrokerConfig>
  readonly clock?: FakeClock
  readonly stateDir?: string
  readonly keepRemoved?: number
  /** The sink of the audit log; without it, the broker has none. */
  readonly auditSink?: AuditSink
  /** The other brokers of the store; without them, the broker is the only one. */
  readonly replicas?: Replicas
}

export async function startBroker(t: Test, init: HarnessInit = {}): Promise<Harness> {
  const stateDir = init.stateDir ?? temporaryFolder(t)
  const clock = init.clock ?? new FakeClock()
  const logger = new CapturingLogger()
  const config: BrokerConfig = {
    ...DEFAULT_BROKER_CONFIG,
    stateDir,
    clusterset: 'demo',
    advertise: ['127.0.0.1:7443'],
    ...init.config,
  }
  const { clusterset, memberCertificateMs } = config
  const log = openSqliteLog({ file: join(stateDir, DATABASE_FILE), keepRemoved: init.keepRemoved ?? 1000 })
  const authority = await CertificateAuthority.open(
    { clock, log },
    { stateDir, clusterset, hosts: ['127.0.0.1'], memberMs: memberCertificateMs },
  )
  await fixSettings(log, config)
  const registry = createMetrics('broker')
  const metrics = brokerMetrics(registry)
  const audit = new AuditTrail({ log, clock, logger, metrics, sink: init.auditSink })
  const others = init.replicas === undefined ? {} : { replicas: init.replicas }
  const broker = new Broker({ log, authority, clock, logger, metrics, audit, ...others }, config)
  const tokens = await openBrokerStore(stateDir, clock)
  const stop = async (): Promise<void> => {
    broker.close()
    await Promise.all([log.close(), tokens.close()])
  }
  t.teardown(stop)
  return { broker, log, clock, logger, tokens, metrics: registry, stateDir, audit, stop }
}

export function facts(podCIDRs: string[] = ['10.42.0.0/16'], change: Partial<ClusterFacts> = {}): ClusterFacts {
  return { podCIDRs, serviceCIDRs: ['10.43.0.0/16'], labels: {}, version: '0.1.0', ...change }
}

/** Returns a join request with a new key; every field can be replaced. */
export async function joinRequest(
  harness: Harness,
  change: Partial<JoinRequest> & { token?: string } = {},
): Promise<JoinRequest> {
  const text = change.token ?? (await harness.tokens.create({})).text
  return {
    secret: parseJoinToken(text, 0).secret(),
    cluster: 'milano',
    csr: await createCsr(createKey()),
    facts: facts(),
    nowMs: harness.clock.now(),
    ...change,
  }
}

export function peerOf(cluster: string, response: { readonly certificate: Uint8Array }): Peer {
  const { serial, notBeforeMs, notAfterMs, renews } = readCertificate(response.certificate)
  const times = { issuedAtMs: notBeforeMs + BACKDATE_MS, expiresAtMs: notAfterMs }
  const peer = { cluster: cluster as ClusterId, address: '192.0.2.1', serial, ...times }
  return renews === undefined ? peer : { ...peer, renews }
}

export interface Joined {
  readonly peer: Peer
  readonly response: JoinResponse
}

export async function join_(
  harness: Harness,
  cluster: string,
  change: Partial<JoinRequest> & { token?: string } = {},
): Promise<Joined> {
  const response = await harness.broker.join(await joinRequest(harness, { cluster, ...change }), '192.0.2.1')
  return { response, peer: peerOf(cluster, response) }
}

export function anExport(name: string, change: Partial<ServiceExportBody> = {}, namespace = 'shop'): MemberRecord {
  const body: ServiceExportBody = {
    kind: 'ServiceExport',
    uid: `uid-${name}`,
    type: 'ClusterSetIP',
    ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
    sessionAffinity: 'None',
    ipFamilies: ['IPv4'],
    exportedLabels: {},
    exportedAnnotations: {},
    ...change,
  }
  return { namespace, name, body }
}

export function aSlice(name: string, address: string, namespace = 'shop'): MemberRecord {
  const body: EndpointSliceBody = {
    kind: 'EndpointSlice',
    service: name,
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: [{ addresses: [address] }],
  }
  return { namespace, name: `${name}-1`, body }
}

/** Returns the declaration of an agent of this release or, without `tellsStatus`, of an earlier one. */
export function declaration(records: readonly MemberRecord[], tellsStatus = true): PublishMessage {
  const reports = tellsStatus ? { tellsStatus: true as const } : {}
  return { t: 'declare', setHash: setHash(records.map(contentHash)), count: records.length, ...reports }
}

export function digest(records: readonly MemberRecord[]): PublishMessage {
  const entries = records.map((record) => ({ key: memberKey(record), hash: contentHash(record) }))
  return { t: 'digest', entries, last: true }
}

/** One publish stream, with the messages that a member sends. */
export class Publisher {
  readonly replies: PublishReply[] = []
  /** The message with which the broker ended the stream; undefined while the stream is open. */
  ended: string | undefined
  readonly #session: PublishSession
  #sequence = 0
  constructor(harness: Harness, peer: Peer) {
    const onEnd = (reason: Error): void => void (this.ended = reason.message)
    this.#session = harness.broker.openPublish(peer, (reply) => this.replies.push(reply), onEnd)
  }
  send(message: PublishMessage): Promise<void> {
    return this.#session.onMessage(message)
  }
  end(): void {
    this.#session.onEnd()
  }
  /** Declares the set, sends the records that the broker asks for, and waits for the acknowledgement. */
  async publish(records: readonly MemberRecord[]): Promise<void> {
    await this.send(declaration(records))
    const answer = this.replies.at(-1)
    if (answer?.t === 'inSync') return
    await this.send(digest(records))
    const need = this.replies.at(-1)
    const keys = need?.t === 'need' ? need.keys.map(memberKeyText) : []
    for (const record of records) if (keys.includes(memberKeyText(memberKey(record)))) await this.put(record)
    if (keys.length > 0) await this.acknowledged()
  }
  put(record: MemberRecord): Promise<void> {
    return this.send({ t: 'put', sequence: (this.#sequence += 1), record })
  }
  remove(record: MemberRecord): Promise<void> {
    return this.send({ t: 'remove', sequence: (this.#sequence += 1), key: memberKey(record) })
  }
  facts(next: ClusterFacts): Promise<void> {
    return this.send({ t: 'facts', sequence: (this.#sequence += 1), facts: next })
  }
  status(next: MemberStatus): Promise<void> {
    return this.send({ t: 'status', sequence: (this.#sequence += 1), status: next })
  }
  /** Waits until the broker has acknowledged all messages. */
  async acknowledged(): Promise<void> {
    await eventually(() => this.replies.some((reply) => reply.t === 'ack' && reply.sequence === this.#sequence), {
      say: `acknowledgement of ${this.#sequence}`,
      intervalMs: 2,
    })
  }
  /** Returns `field: message` for every refusal so far. */
  refusals(): string[] {
    return this.replies.flatMap((reply) => (reply.t === 'refused' ? [`${reply.field}: ${reply.message}`] : []))
  }
}

/** A watch as lines of text; `failure` is the error that ended it. */
export class Watcher {
  readonly lines: string[] = []
  readonly batches: Uint8Array[] = []
  failure: unknown
  revision = 0
  epoch = ''
  /** The broker's time in the latest `contact` message. */
  brokerMs: number | undefined
  readonly #stop = new AbortController()
  readonly #done: Promise<void>
  constructor(harness: Harness, peer: Peer, request: WatchRequest = {}) {
    this.#done = this.#run(harness.broker.watch(peer, request, this.#stop.signal))
  }
  async line(want: string | RegExp): Promise<void> {
    await eventually(() => this.lines.some((line) => (typeof want === 'string' ? line === want : want.test(line))), {
      say: `${String(want)} in ${JSON.stringify(this.lines, undefined, 1)}`,
      intervalMs: 2,
    })
  }
  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#done
  }
  async ended(): Promise<unknown> {
    await this.#done
    return this.failure
  }
  async #run(messages: AsyncIterable<WatchMessage>): Promise<void> {
    try {
      for await (const message of messages) this.#take(message)
    } catch (error) {
      this.failure = error
    }
  }
  #take(message: WatchMessage): void {
    if (message.t === 'reset') {
      this.epoch = message.epoch
      this.lines.push(`reset ${message.resumed ? 'resumed' : 'whole'}`)
      return
    }
    if (message.t === 'authorities') {
      this.lines.push(`authorities ${message.bundle.length}`)
      return
    }
    if (message.t === 'relays') {
      this.lines.push(`relays ${message.relays.join(' ')}`.trim())
      return
    }
    if (message.t === 'access') {
      this.lines.push(`access ${message.accessDefault}`)
      return
    }
    if (message.t === 'contact') {
      this.brokerMs = message.nowMs
      this.lines.push(`contact ${message.silent.map(({ cluster, forMs }) => `${cluster}:${forMs}`).join(' ')}`.trim())
      return
    }
    if (message.t === 'packed') {
      const inner = decodeWatchMessage(encodeWatchMessage(message))
      if (inner !== undefined) this.#take(inner)
      return
    }
    if (message.t === 'exportedNamespaces') {
      this.lines.push(`exported ${message.whole ? 'whole ' : ''}${changeText(message)}`.trim())
      return
    }
    if (message.t !== 'added') this.revision = message.revision
    if (message.t === 'synced') {
      this.lines.push(`synced complete=${message.complete.join(',')} departed=${message.departed.join(',')}`)
      return
    }
    if (message.t === 'ownersChanged') {
      const { complete, departed } = message
      this.lines.push(`owners complete=${changeText(complete)} departed=${changeText(departed)}`)
      return
    }
    for (const bytes of message.events) {
      this.batches.push(bytes)
      const event = decodeRecordEvent(bytes)
      if (event?.t === 'put')
        this.lines.push(`put ${recordKeyText(event.record.key)} ${reported(event.record.body)}`.trim())
      if (event?.t === 'remove') this.lines.push(`remove ${recordKeyText(event.key)}`)
    }
  }
}

function changeText({ added, removed }: ListChange): string {
  return [...added.map((one) => `+${one}`), ...removed.map((one) => `-${one}`)].join(',')
}

function reported(body: { readonly kind: string }): string {
  const any = body as { ips?: string[]; spec?: { globalCIDRs?: string[] } }
  return (any.ips ?? any.spec?.globalCIDRs ?? []).join(' ')
}
