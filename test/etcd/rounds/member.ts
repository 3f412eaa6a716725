/**
 * A member that behaves towards the brokers as its agent does: it opens the same sessions, over real TLS, to any
 * replica that it reaches. It waits for an answer no longer than a round allows.
 */
import { type MemberRecord, recordKeyText } from '../../../model/records.ts'
import { AddressBook } from '../../../protocol/broker-addresses.ts'
import { RefusedError } from '../../../protocol/broker-api.ts'
import type { BrokerClient } from '../../../protocol/broker-client.ts'
import { memberKey, memberKeyText } from '../../../protocol/codec/content-hash.ts'
import { certificateProblem, readCertificate } from '../../../protocol/identity/certificates.ts'
import type { MemberIdentity } from '../../../protocol/membership/member-files.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { Replica } from '../../../protocol/replica/record-replica.ts'
import { PublishSession } from '../../../protocol/sessions/publish-session.ts'
import { WatchSession } from '../../../protocol/sessions/watch-session.ts'
import { connectBroker } from '../../../protocol/transport/grpc-client.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import type { RecordValue, SeenRecord } from './checker/history.ts'
import { recordValue, versionedExport } from './record-values.ts'
import type { Answered, Recorder } from './recorder.ts'

const clock = new SystemClock()
const LIMITS = { callTimeoutMs: 5000, connectTimeoutMs: 2000, keepaliveMs: 1000, keepaliveTimeoutMs: 1000 }
const SESSION = { answerTimeoutMs: 6000, retryMaxMs: 500 }
const SETTLE_MS = 4000

export interface MemberInit {
  readonly identity: MemberIdentity
  readonly life: number
  readonly recorder: Recorder
}

export class Member {
  readonly cluster: string
  readonly life: number
  readonly logger = new CapturingLogger()
  readonly replica = new Replica()
  readonly #recorder: Recorder
  #identity: MemberIdentity
  #client: BrokerClient
  #publish: PublishSession | undefined
  #watch: WatchSession | undefined
  #stop = new AbortController()
  #running: Promise<unknown> = Promise.resolve()
  readonly #desired = new Map<string, MemberRecord>()
  /** Calls whose answers are late, by record name. Each is the last call for its record. */
  readonly #open = new Map<string, Answered>()

  constructor({ identity, life, recorder }: MemberInit) {
    this.cluster = identity.cluster
    this.life = life
    this.#recorder = recorder
    this.#identity = identity
    this.#client = connect(identity)
    this.start()
  }

  get watcher(): string {
    return `${this.cluster}.${this.life}`
  }

  /** Starts the sessions as an agent does after a restart with its saved state. */
  start(): void {
    const { logger, replica } = this
    const common = { connect: () => this.#client, clock, logger }
    this.#stop = new AbortController()
    this.#publish = new PublishSession(common, SESSION)
    this.#publish.setDesired(new Map(this.#desired))
    const onChange = (changes: Parameters<ConstructorParameters<typeof WatchSession>[0]['onChange']>[0]): void => {
      const seen = changes.map(({ t, record }): SeenRecord => {
        const key = recordKeyText(record.key)
        return t === 'removed' ? { key } : { key, value: valueOf(record) }
      })
      const { epoch = '', revision } = replica
      this.#recorder.observe({ watcher: this.watcher, epoch, revision, changes: seen })
    }
    this.#watch = new WatchSession({ ...common, replica, onChange }, SESSION)
    this.#running = Promise.all([this.#publish.run(this.#stop.signal), this.#watch.run(this.#stop.signal)])
  }

  async halt(): Promise<void> {
    this.#stop.abort()
    await this.#running
  }

  async close(): Promise<void> {
    await this.halt()
    this.#client.close()
  }

  /**
   * Puts a version of a record or withdraws the record. It resolves when the brokers answer, or when the answer is
   * late.
   */
  async write(name: string, t: 'put' | 'remove', version: number): Promise<void> {
    const record = versionedExport(name, version)
    const text = memberKeyText(memberKey(record))
    const key = `${this.cluster}/${text}`
    const answered = this.#recorder.begin({ t, cluster: this.cluster, life: this.life, key, version })
    this.#open.set(name, answered)
    if (t === 'put') this.#desired.set(text, record)
    else this.#desired.delete(text)
    this.#publish?.setDesired(new Map(this.#desired))
    if (await this.settled(SETTLE_MS)) return
    answered('unknown')
  }

  /** Returns true once the brokers hold all that this member publishes, and so acknowledge every call so far. */
  async settled(withinMs: number): Promise<boolean> {
    const waiting = new Map(this.#open)
    try {
      await this.#publish?.whenSettled(AbortSignal.any([AbortSignal.timeout(withinMs), this.#stop.signal]))
    } catch {
      return false
    }
    for (const [name, answered] of waiting) {
      answered('ok')
      if (this.#open.get(name) === answered) this.#open.delete(name)
    }
    return true
  }

  /** Renews the certificate for the same key, as agents do each day. */
  async renew(): Promise<void> {
    const answered = this.#recorder.begin({ t: 'renew', cluster: this.cluster, life: this.life })
    try {
      const { cluster, clusterset, key, caBundle: trusted } = this.#identity
      const answer = await this.#client.renew(await createCsr(key), AbortSignal.timeout(LIMITS.callTimeoutMs))
      const problem = certificateProblem({ cluster, clusterset, key, trusted }, answer, clock.now())
      if (problem !== undefined) throw new Error(problem)
      // A broker whose clock is ahead issued this certificate. The other brokers would refuse it until it becomes
      // valid, and no agent accepts it.
      if (readCertificate(answer.certificate).notBeforeMs > clock.now()) throw new Error('it begins later')
      this.#identity = { ...this.#identity, certificate: answer.certificate, caBundle: answer.caBundle }
      const before = this.#client
      this.#client = connect(this.#identity)
      before.close()
      answered('ok')
    } catch (error) {
      answered(error instanceof RefusedError ? 'failed' : 'unknown')
    }
  }

  /** Returns true when the brokers confirm that this cluster is no longer a member. */
  async leave(): Promise<boolean> {
    const { cluster, life } = this
    const answered = this.#recorder.begin({ t: 'end', how: 'left', cluster, life })
    try {
      await this.#client.leave(AbortSignal.timeout(LIMITS.callTimeoutMs))
      answered('ok')
      return true
    } catch (error) {
      // The refusal shows that an earlier call, whose answer was lost, has already ended the membership.
      const isGone = error instanceof RefusedError && error.code === 'PermissionDenied'
      answered(isGone ? 'ok' : error instanceof RefusedError ? 'failed' : 'unknown')
      return isGone
    }
  }

  get isLive(): boolean {
    return this.#publish?.state().t === 'live' && this.#watch?.state().t === 'live'
  }

  state(): ReadonlyMap<string, RecordValue> {
    return new Map([...this.replica.records].map(([key, record]) => [key, valueOf(record)]))
  }

  /** Returns the reason why the member is not live, for the output of a failed test. */
  said(): string {
    const states = [this.#publish?.state(), this.#watch?.state()].map((state) => JSON.stringify(state))
    return `${this.watcher}: ${states.join(' ')}\n${this.logger.messages().slice(-10).join('\n')}`
  }
}

function valueOf({ body, createdAtMs, revision }: ReturnType<Replica['records']['get']> & object): RecordValue {
  return recordValue(body, createdAtMs, revision)
}

function connect({ brokerAddresses: own, clusterset, caBundle: ca, certificate, key }: MemberIdentity): BrokerClient {
  const book = new AddressBook({ own, clock })
  const logger = new CapturingLogger()
  return connectBroker({
    addresses: own,
    book,
    clusterset,
    ca,
    identity: { certificate, key },
    clock,
    logger,
    limits: LIMITS,
  })
}
