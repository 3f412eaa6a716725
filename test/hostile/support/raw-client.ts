/** A member that is not ours: calls as broker.proto has them, on plain gRPC, with whatever key and certificate it is given. */
import { Client, type ServiceError, credentials, status } from '@grpc/grpc-js'
import { type KeyObject, createHash, createPrivateKey, generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import * as wire from '../../../protocol/gen/broker.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { LoopbackBroker } from '../../cli/loopback-broker.ts'
import { eventually } from '../../support/eventually.ts'

const NAME = 'broker.sealane.internal'
const DEADLINE_MS = 20_000
const PATIENCE = { deadlineMs: DEADLINE_MS }

/** The machine's time, or another one: OpenSSL judges certificates by the machine's, so it begins in the past. */
export class ShiftedClock extends SystemClock {
  shiftMs = -3_600_000
  override now(): number {
    return Date.now() + this.shiftMs
  }
}

/** A broker on a loopback port whose time the test moves. Members are told twice a second who is silent. */
export async function startTarget(t: Test): Promise<{ readonly broker: LoopbackBroker; readonly clock: ShiftedClock }> {
  const clock = new ShiftedClock()
  return { broker: await LoopbackBroker.start(t, { contactMs: 500 }, clock), clock }
}

export interface RawFacts {
  readonly podCidrs?: string[]
  readonly serviceCidrs?: string[]
}

/** What a call ended with, as `CODE details`; `ok` where it did not fail. */
export async function verdict(work: Promise<unknown>): Promise<string> {
  try {
    await work
    return 'ok'
  } catch (error) {
    const { code, details } = error as ServiceError
    return `${status[code]} ${details}`
  }
}

export class RawMember {
  readonly cluster: string
  readonly #t: Test
  readonly #broker: LoopbackBroker
  readonly #key: KeyObject
  readonly #certificate: Buffer
  readonly #client: Client

  constructor(t: Test, broker: LoopbackBroker, cluster: string, key: KeyObject, certificate: Buffer) {
    this.cluster = cluster
    this.#t = t
    this.#broker = broker
    this.#key = key
    this.#certificate = certificate
    this.#client = connect(broker, { key, certificate })
    t.teardown(() => this.#client.close())
  }

  /** With a token made for it, or another one. Rejects as the call does. */
  static async join(
    t: Test,
    broker: LoopbackBroker,
    cluster: string,
    { podCidrs = ['10.42.0.0/16'], serviceCidrs = [], token }: RawFacts & { readonly token?: string } = {},
  ): Promise<RawMember> {
    const text = token ?? (await broker.token())
    const key = newKey()
    const client = connect(broker)
    try {
      const response = await unary(client, 'Join', wire.JoinRequest, wire.JoinResponse, {
        secret: secretOf(text),
        cluster,
        csr: Buffer.from(await createCsr(key)),
        facts: { podCidrs, serviceCidrs, neededCidrs: [], labels: [], version: '0.0.0' },
        nowMs: broker.clock.now(),
      })
      return new RawMember(t, broker, cluster, key, response.certificate)
    } finally {
      client.close()
    }
  }

  /** Whoever has read the files of this one: the same key and the same certificate, on a connection of its own. */
  stolen(): RawMember {
    return new RawMember(this.#t, this.#broker, this.cluster, this.#key, this.#certificate)
  }

  /** Gives who shows the new certificate; this one goes on showing the old one. */
  async renew(): Promise<RawMember> {
    const csr = Buffer.from(await createCsr(this.#key))
    const { certificate } = await unary(this.#client, 'Renew', wire.RenewRequest, wire.RenewResponse, { csr })
    return new RawMember(this.#t, this.#broker, this.cluster, this.#key, certificate)
  }

  async leave(): Promise<void> {
    await unary(this.#client, 'Leave', wire.LeaveRequest, wire.LeaveResponse, {})
  }

  publish(): RawPublish {
    return new RawPublish(this.#t, this.#client)
  }

  /** Everything up to the first `synced`, as records. Rejects as the call does. */
  async records(): Promise<wire.StoredRecord[]> {
    const call = this.#client.makeServerStreamRequest(
      path('Watch'),
      (one: wire.WatchRequest) => encoded(wire.WatchRequest, one),
      (bytes: Buffer) => wire.WatchMessage.decode(bytes),
      {},
    )
    const found: wire.StoredRecord[] = []
    return new Promise((resolve, reject) => {
      call.on('error', reject)
      call.on('data', ({ message }: wire.WatchMessage) => {
        if (message?.$case === 'batch')
          for (const bytes of message.value.events) {
            const { event } = wire.RecordEvent.decode(bytes)
            if (event?.$case === 'put') found.push(event.value)
          }
        if (message?.$case !== 'synced') return
        resolve(found)
        setImmediate(() => call.cancel())
      })
    })
  }

  /** The names of its records that the broker hands out: `Kind/namespace/name`. */
  async stored(cluster = this.cluster): Promise<string[]> {
    const records = await this.records()
    return records
      .filter((one) => one.cluster === cluster)
      .map(({ body, namespace, name }) => `${body?.body?.$case ?? ''}/${namespace}/${name}`)
  }
}

/** One Publish stream, whose set is empty at first. */
export class RawPublish {
  readonly #call
  readonly #replies: wire.PublishReply[] = []
  #sequence = 0
  /** What the stream ended with. */
  ended: string | undefined

  constructor(t: Test, client: Client) {
    this.#call = client.makeBidiStreamRequest(
      path('Publish'),
      (one: wire.PublishMessage) => encoded(wire.PublishMessage, one),
      (bytes: Buffer) => wire.PublishReply.decode(bytes),
    )
    this.#call.on('data', (reply: wire.PublishReply) => this.#replies.push(reply))
    this.#call.on('error', (error: ServiceError) => (this.ended = `${status[error.code]} ${error.details}`))
    this.#call.on('end', () => (this.ended ??= 'ok'))
    t.teardown(() => this.close())
    const setHash = createHash('sha256').digest()
    this.#send({ $case: 'declare', value: { setHash, count: 0, tellsStatus: false } })
  }

  close(): void {
    this.#call.cancel()
  }

  /** Until the broker has taken the empty set, or has ended the stream. */
  async opened(): Promise<this> {
    const answered = (): string | undefined => this.#replies[0]?.message?.$case ?? this.ended
    if ((await eventually(answered, { ...PATIENCE, say: 'an answer to declare' })) === 'sendDigest') {
      this.#send({ $case: 'digest', value: { entries: [], last: true } })
      await eventually(() => this.ended ?? this.#replies.some(({ message }) => message?.$case === 'need'), PATIENCE)
    }
    return this
  }

  /** `ok`, or `field: reason`; what the stream ended with where it did. */
  put(record: wire.MemberRecord): Promise<string> {
    const sequence = (this.#sequence += 1)
    this.#send({ $case: 'put', value: { sequence, record } })
    return this.#answer(sequence)
  }

  remove(key: wire.MemberKey): Promise<string> {
    const sequence = (this.#sequence += 1)
    this.#send({ $case: 'remove', value: { sequence, key } })
    return this.#answer(sequence)
  }

  facts({ podCidrs = ['10.42.0.0/16'], serviceCidrs = [] }: RawFacts): Promise<string> {
    const sequence = (this.#sequence += 1)
    this.#send({
      $case: 'facts',
      value: { sequence, facts: { podCidrs, serviceCidrs, neededCidrs: [], labels: [], version: '0.0.0' } },
    })
    return this.#answer(sequence)
  }

  async #answer(sequence: number): Promise<string> {
    return eventually(() => {
      if (this.ended !== undefined) return this.ended
      const messages = this.#replies.map(({ message }) => message)
      const refused = messages.find((one) => one?.$case === 'refused' && one.value.sequence === sequence)
      const done = messages.some((one) => one?.$case === 'ack' && one.value.sequence >= sequence)
      if (refused?.$case === 'refused') return `${refused.value.field}: ${refused.value.message}`
      return done && 'ok'
    }, PATIENCE)
  }

  #send(message: NonNullable<wire.PublishMessage['message']>): void {
    this.#call.write({ message })
  }
}

/** An Endpoint record of lane 0 with this WireGuard key. */
export function endpointRecord(cluster: string, node: string, publicKey: string): wire.MemberRecord {
  const value: wire.Endpoint = { cluster, node, lane: 0, publicKey, candidates: [], capabilities: [] }
  return { namespace: '', name: `${cluster}.${node}-lane0`, body: { body: { $case: 'endpoint', value } } }
}

interface Codec<T> {
  encode(message: T): { finish(): Uint8Array }
  decode(bytes: Buffer): T
}

function encoded<T>(codec: Pick<Codec<T>, 'encode'>, message: T): Buffer {
  return Buffer.from(codec.encode(message).finish())
}

function path(method: string): string {
  return `/sealane.v1.Broker/${method}`
}

function unary<A, B>(client: Client, method: string, ask: Codec<A>, answer: Codec<B>, request: A): Promise<B> {
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(
      path(method),
      (one: A) => encoded(ask, one),
      (bytes: Buffer) => answer.decode(bytes),
      request,
      { deadline: Date.now() + DEADLINE_MS } as never,
      (error, value) => (error === null ? resolve(value as B) : reject(error)),
    )
  })
}

function connect(
  { port, state }: LoopbackBroker,
  identity?: { readonly key: KeyObject; readonly certificate: Buffer },
): Client {
  const ca = readFileSync(join(state, 'ca.crt'))
  const pem = identity && {
    key: Buffer.from(identity.key.export({ type: 'pkcs8', format: 'pem' })),
    certificate: Buffer.from(
      `-----BEGIN CERTIFICATE-----\n${identity.certificate.toString('base64')}\n-----END CERTIFICATE-----\n`,
    ),
  }
  return new Client(`127.0.0.1:${port}`, credentials.createSsl(ca, pem?.key, pem?.certificate), {
    'grpc.ssl_target_name_override': NAME,
    'grpc.default_authority': NAME,
    // Each has a connection of its own: the broker judges who is at its end.
    'grpc.use_local_subchannel_pool': 1,
  })
}

function newKey(): KeyObject {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return createPrivateKey(privateKey.export({ type: 'pkcs8', format: 'pem' }))
}

/** A token is JSON with a checksum behind it. */
function secretOf(text: string): string {
  const bytes = Buffer.from(text.slice(text.indexOf('.') + 1), 'base64url')
  return (JSON.parse(bytes.subarray(0, -4).toString()) as { s: string }).s
}
