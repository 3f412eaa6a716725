/**
 * A compromised broker: it has the right CA, and sends what the test tells it to, even what no broker of ours would. It
 * is made from protocol/broker.proto alone.
 */
import { Server, ServerCredentials, type ServerDuplexStream, type ServerWritableStream, status } from '@grpc/grpc-js'
import type { Test } from 'tap'
import { parseClusterId } from '../../../model/ids.ts'
import * as wire from '../../../protocol/gen/broker.ts'
import { createKey, keyToPem } from '../../../protocol/identity/keys.ts'
import type { MemberIdentity } from '../../../protocol/membership/member-files.ts'
import { certificateToPem, fingerprint } from '../../../protocol/identity/certificates.ts'
import { createJoinToken } from '../../../protocol/identity/token.ts'
import {
  type Identity,
  createCa,
  createCsr,
  createServerCertificate,
  issueMemberCertificate,
} from '../../../protocol/identity/x509.ts'

const CLUSTERSET = 'default'
const HOUR_MS = 3_600_000

type Watcher = ServerWritableStream<wire.WatchRequest, wire.WatchMessage>
type Publisher = ServerDuplexStream<wire.PublishMessage, wire.PublishReply>

/** One record as the wire has it, without the fields that the broker adds. */
export interface LooseRecord {
  readonly cluster: string
  readonly namespace?: string
  readonly name: string
  readonly createdAtMs?: number
  readonly body: NonNullable<wire.RecordBody['body']>
}

export class FakeBroker {
  /** Answers a renewal. Undefined: the broker does not answer. */
  renewal: ((csr: Uint8Array) => Promise<wire.RenewResponse>) | undefined
  renewals = 0
  /** How many streams were begun. */
  watches = 0
  /** Fields that replace those of the right answer to a join. */
  joined: Partial<wire.JoinResponse> = {}
  readonly #ca: Identity
  readonly #server = new Server({ 'grpc.max_send_message_length': -1 })
  readonly #watchers = new Set<Watcher>()
  readonly #publishers = new Set<Publisher>()
  #first: readonly LooseRecord[] = []
  #revision = 0
  #port = 0

  private constructor(ca: Identity) {
    this.#ca = ca
  }

  /** Listens on loopback, and sends each watcher `first` as its whole snapshot. */
  static async start(t: Test, first: readonly LooseRecord[]): Promise<FakeBroker> {
    const nowMs = Date.now() - HOUR_MS
    const broker = new FakeBroker(await createCa({ clusterset: CLUSTERSET, key: createKey(), nowMs }))
    broker.#first = first
    await broker.#listen()
    t.teardown(() => broker.#server.forceShutdown())
    return broker
  }

  /** The identity that a member has after joining. `ageMs` is the age of its certificate, which lasts four hours. */
  async identity(cluster: string, ageMs = 0): Promise<MemberIdentity> {
    const id = parseClusterId(cluster)
    const key = createKey()
    const init = { clusterset: CLUSTERSET, cluster: id, csr: await createCsr(key), nowMs: Date.now() - ageMs }
    return {
      cluster: id,
      clusterset: CLUSTERSET,
      brokerAddresses: [`127.0.0.1:${this.#port}`],
      observedAddress: '127.0.0.1',
      key,
      certificate: await issueMemberCertificate(this.#ca, { ...init, validMs: 4 * HOUR_MS }),
      caBundle: [this.#ca.certificate],
    }
  }

  get caCertificate(): Uint8Array {
    return this.#ca.certificate
  }

  /** A certificate for any cluster, signed by the CA. */
  certificateFor(cluster: string, csr: Uint8Array, ageMs = 0): Promise<Uint8Array> {
    const init = { clusterset: CLUSTERSET, cluster: parseClusterId(cluster), csr, nowMs: Date.now() - ageMs }
    return issueMemberCertificate(this.#ca, { ...init, validMs: 4 * HOUR_MS })
  }

  /** Sends the records in one batch. */
  put(...records: readonly LooseRecord[]): void {
    this.raw(...records.map((record) => this.#event(record)))
  }

  remove(...keys: readonly wire.RecordKey[]): void {
    const events = keys.map((key) => {
      const value = { key, revision: ++this.#revision }
      return wire.RecordEvent.encode({ event: { $case: 'remove', value } }).finish()
    })
    this.raw(...events)
  }

  /** Sends arbitrary octets as events. */
  raw(...events: readonly Uint8Array[]): void {
    this.say({ $case: 'batch', value: { events: events.map((one) => Buffer.from(one)), revision: this.#revision } })
  }

  /** Sends any message of a watch. */
  say(message: NonNullable<wire.WatchMessage['message']>): void {
    for (const watcher of this.#watchers) watcher.write({ message })
  }

  /** Ends all watches, as a broker does that stops. */
  endWatches(): void {
    for (const watcher of this.#watchers) watcher.emit('error', { code: status.UNAVAILABLE, details: 'stopping' })
  }

  /** Sends `synced` with the owners whose whole set was sent, and with those that are gone. */
  synced(complete: readonly string[], departed: readonly string[] = []): void {
    this.say({
      $case: 'synced',
      value: { revision: this.#revision, complete: [...complete], departed: [...departed] },
    })
  }

  #event({ cluster, namespace = '', name, createdAtMs = 1, body }: LooseRecord): Uint8Array {
    const revision = ++this.#revision
    const value = { cluster, namespace, name, revision, createdAtMs, body: { body } }
    return wire.RecordEvent.encode({ event: { $case: 'put', value } }).finish()
  }

  async #listen(): Promise<void> {
    const key = createKey()
    const server = await createServerCertificate(this.#ca, { clusterset: CLUSTERSET, key, nowMs: Date.now() - HOUR_MS })
    const chain = certificateToPem(server.certificate) + certificateToPem(this.#ca.certificate)
    const pair = { cert_chain: Buffer.from(chain), private_key: Buffer.from(keyToPem(key)) }
    const ca = Buffer.from(certificateToPem(this.#ca.certificate))
    this.#server.addService(wire.BrokerService, {
      join: (
        { request }: { request: wire.JoinRequest },
        callback: (error: Error | null, answer?: wire.JoinResponse) => void,
      ) => {
        this.#join(request).then(
          (answer) => callback(null, answer),
          (error: unknown) => callback(error as Error),
        )
      },
      leave: (_call: unknown, callback: (error: null, answer: object) => void) => callback(null, {}),
      renew: (
        call: { request: wire.RenewRequest },
        callback: (error: Error | null, a?: wire.RenewResponse) => void,
      ) => {
        this.renewals += 1
        if (this.renewal === undefined) callback(new Error('not now'))
        else
          this.renewal(call.request.csr).then(
            (answer) => callback(null, answer),
            (error: unknown) => callback(error as Error),
          )
      },
      publish: (call: Publisher) => this.#publish(call),
      watch: (call: Watcher) => this.#watch(call),
    })
    const credentials = ServerCredentials.createSsl(ca, [pair], false)
    this.#port = await new Promise((resolve, reject) =>
      this.#server.bindAsync('127.0.0.1:0', credentials, (error, port) => (error ? reject(error) : resolve(port))),
    )
  }

  async #join({ cluster, csr }: wire.JoinRequest): Promise<wire.JoinResponse> {
    return {
      certificate: Buffer.from(await this.certificateFor(cluster, csr)),
      caBundle: [Buffer.from(this.#ca.certificate)],
      clusterset: CLUSTERSET,
      clusterIndex: 1,
      globalCidrs: [],
      globalRange: '244.0.0.0/8',
      clustersetIpRange: '245.0.0.0/16',
      observedAddress: '127.0.0.1',
      podCidrs: [],
      serviceCidrs: [],
      observedCounts: true,
      notes: [],
      renumbered: [],
      ...this.joined,
    }
  }

  /** A token for joining this broker. */
  token(): string {
    const caPin = fingerprint(this.#ca.certificate)
    const addresses = [`127.0.0.1:${this.#port}`]
    return createJoinToken({ addresses, caPin, clusterset: CLUSTERSET, expiresAtMs: Date.now() + HOUR_MS }).text()
  }

  /** Accepts every publish without checking it. */
  #publish(call: Publisher): void {
    this.#publishers.add(call)
    call.on('data', ({ message }: wire.PublishMessage) => {
      if (message?.$case === 'declare')
        call.write({ message: { $case: 'inSync', value: { takesStatus: true, asksHeld: '' } } })
      else if (message !== undefined && 'sequence' in message.value)
        call.write({ message: { $case: 'ack', value: { sequence: message.value.sequence } } })
    })
    call.on('end', () => call.end())
    call.on('error', () => undefined)
  }

  #watch(call: Watcher): void {
    this.watches += 1
    call.on('error', () => undefined)
    call.on('cancelled', () => this.#watchers.delete(call))
    call.on('close', () => this.#watchers.delete(call))
    call.write({ message: { $case: 'reset', value: { epoch: `e${Date.now()}`, resumed: false, addresses: [] } } })
    const events = this.#first.map((record) => Buffer.from(this.#event(record)))
    call.write({ message: { $case: 'batch', value: { events, revision: this.#revision } } })
    call.write({ message: { $case: 'synced', value: { revision: this.#revision, complete: [], departed: [] } } })
    call.write({ message: { $case: 'contact', value: { silent: [] } } })
    this.#watchers.add(call)
  }
}
