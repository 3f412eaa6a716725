/** A member made from protocol/broker.proto with grpc-js alone: it does what it is told, also what no agent of ours does. */
import { Client, type ClientDuplexStream, type ClientReadableStream, Metadata, credentials } from '@grpc/grpc-js'
import { X509Certificate, generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openBrokerStore } from '../../../broker/state/broker-store.ts'
import {
  BrokerService,
  type ClusterFacts,
  JoinResponse,
  type MemberRecord,
  PublishMessage,
  PublishReply,
  WatchMessage,
} from '../../../protocol/gen/broker.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { parseJoinToken } from '../../../protocol/identity/token.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { eventually } from '../../support/eventually.ts'

export interface RawBroker {
  /** 127.0.0.1:port */
  readonly address: string
  readonly state: string
}

export interface RawIdentity {
  readonly cluster: string
  readonly key: string
  readonly cert: string
  readonly ca: string
}

export interface Status {
  readonly code: number
  readonly details: string
}

export const NO_FACTS: ClusterFacts = {
  podCidrs: ['10.42.0.0/16'],
  serviceCidrs: [],
  neededCidrs: [],
  labels: [],
  version: 'raw',
}

const same = (bytes: Buffer): Buffer => bytes

/** A channel of its own, with the certificate of a member or none. */
export function openChannel({ address, state }: RawBroker, identity?: RawIdentity): Client {
  const ca = readFileSync(join(state, 'ca.crt'))
  const own = identity === undefined ? [] : [Buffer.from(identity.key), Buffer.from(identity.cert)]
  return new Client(`ipv4:${address}`, credentials.createSsl(ca, ...own), {
    'grpc.ssl_target_name_override': 'broker.sealane.internal',
    'grpc.use_local_subchannel_pool': 1,
    'grpc.enable_retries': 0,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 300,
  })
}

/** The secret of a token made beside the running broker. */
export async function tokenSecret(state: string, cluster?: string): Promise<string> {
  const store = await openBrokerStore(state, new SystemClock())
  try {
    const { text } = await store.create(cluster === undefined ? {} : { cluster })
    return parseJoinToken(text, Date.now()).secret()
  } finally {
    await store.close()
  }
}

/** The bytes of a Join request. */
export async function joinBytes(
  secret: string,
  cluster: string,
  facts: ClusterFacts = NO_FACTS,
  key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey,
): Promise<Buffer> {
  const csr = Buffer.from(await createCsr(key))
  return BrokerService.join.requestSerialize({ secret, cluster, csr, facts, nowMs: Date.now() })
}

/** One unary call; gives the status where it is refused. */
export function callUnary(channel: Client, path: string, bytes: Buffer): Promise<Buffer | Status> {
  return new Promise((resolve) => {
    channel.makeUnaryRequest(
      path,
      same,
      same,
      bytes,
      new Metadata(),
      { deadline: Date.now() + 20_000 },
      (error, answer) => {
        resolve(error === null ? (answer ?? Buffer.alloc(0)) : { code: error.code, details: error.details })
      },
    )
  })
}

/** Joins with a token made for it. Throws where it is refused. */
export async function rawJoin(
  broker: RawBroker,
  cluster: string,
  facts: ClusterFacts = NO_FACTS,
): Promise<RawIdentity> {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const request = await joinBytes(await tokenSecret(broker.state, cluster), cluster, facts, privateKey)
  const channel = openChannel(broker)
  const answer = await callUnary(channel, BrokerService.join.path, request)
  channel.close()
  if (!Buffer.isBuffer(answer)) throw new Error(`join of ${cluster}: ${answer.code} ${answer.details}`)
  const { certificate, caBundle } = JoinResponse.decode(answer)
  const pem = (der: Uint8Array | undefined): string => new X509Certificate(der ?? Buffer.alloc(0)).toString()
  const key = privateKey.export({
    type: 'pkcs8',
    format: 'pem',
  })
  return { cluster, key, cert: pem(certificate), ca: pem(caBundle[0]) }
}

/** One Publish stream. */
export class RawPublish {
  readonly replies: PublishReply[] = []
  status: Status | undefined
  readonly call: ClientDuplexStream<Buffer, Buffer>
  sequence = 0

  constructor(channel: Client) {
    this.call = channel.makeBidiStreamRequest(BrokerService.publish.path, same, same, new Metadata())
    this.call.on('data', (bytes: Buffer) => this.replies.push(PublishReply.decode(bytes)))
    this.call.on('status', (status: Status) => (this.status = status))
    this.call.on('error', () => undefined)
  }

  send(message: PublishMessage['message']): boolean {
    return this.call.write(Buffer.from(PublishMessage.encode({ message }).finish()))
  }

  /** Declares another set than the broker can have, and no record of it: the stream is open then. */
  async open(): Promise<this> {
    this.send({ $case: 'declare', value: { setHash: Buffer.alloc(32), count: 1, tellsStatus: true } })
    await this.has('sendDigest')
    this.send({ $case: 'digest', value: { entries: [], last: true } })
    await this.has('need')
    return this
  }

  facts(facts: ClusterFacts): void {
    this.send({ $case: 'facts', value: { sequence: (this.sequence += 1), facts } })
  }

  /** An export that says the number in its annotation. */
  put(name: string, says = ''): boolean {
    const sequence = (this.sequence += 1)
    return this.send({ $case: 'put', value: { sequence, record: exportRecord(name, says) } })
  }

  async has(kind: NonNullable<PublishReply['message']>['$case']): Promise<void> {
    await eventually(() => this.replies.some(({ message }) => message?.$case === kind), {
      say: `${kind} (status ${JSON.stringify(this.status)})`,
      intervalMs: 2,
      deadlineMs: 15_000,
    })
  }

  acknowledged(): number {
    const acks = this.replies.flatMap(({ message }) => (message?.$case === 'ack' ? [message.value.sequence] : []))
    return acks.at(-1) ?? 0
  }

  async settled(): Promise<void> {
    await eventually(() => this.acknowledged() === this.sequence, {
      say: `acknowledgement of ${this.sequence} (status ${JSON.stringify(this.status)})`,
      intervalMs: 2,
      deadlineMs: 15_000,
    })
  }

  /** The status that the stream ends with. */
  ended(deadlineMs = 10_000): Promise<Status> {
    return eventually(() => this.status, { say: 'a status of the publish stream', deadlineMs })
  }
}

/** One Watch stream. */
export class RawWatch {
  status: Status | undefined
  readonly call: ClientReadableStream<Buffer>

  constructor(channel: Client, onMessage: (message: WatchMessage) => void) {
    this.call = channel.makeServerStreamRequest(BrokerService.watch.path, same, same, Buffer.alloc(0), new Metadata())
    this.call.on('data', (bytes: Buffer) => onMessage(WatchMessage.decode(bytes)))
    this.call.on('status', (status: Status) => (this.status = status))
    this.call.on('error', () => undefined)
  }
}

export function exportRecord(name: string, says = ''): MemberRecord {
  return {
    namespace: 'shop',
    name,
    body: {
      body: {
        $case: 'serviceExport',
        value: {
          uid: `uid-${name}`,
          type: 'Headless',
          ports: [],
          sessionAffinity: 'None',
          ipFamilies: ['IPv4'],
          exportedLabels: [],
          exportedAnnotations: says === '' ? [] : [{ key: 'says', value: says }],
        },
      },
    },
  }
}
