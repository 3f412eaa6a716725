/** A member that is written from protocol/broker.proto: it says what it likes, and checks nothing. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Client, type ClientDuplexStream, Metadata, type ServiceError, credentials } from '@grpc/grpc-js'
import type { PublishMessage } from '../../../protocol/gen/broker.ts'
import { BrokerService, type ClusterFacts, type JoinResponse, type PublishReply } from '../../../protocol/gen/broker.ts'
import { createKey, keyToPem } from '../../../protocol/identity/keys.ts'
import { certificateToPem } from '../../../protocol/identity/pem.ts'
import { parseJoinToken } from '../../../protocol/identity/token.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { eventually } from '../../support/eventually.ts'

const NAME = 'broker.sealane.internal'
const OPTIONS = { 'grpc.ssl_target_name_override': NAME, 'grpc.default_authority': NAME }

export interface RawBroker {
  /** host:port */
  readonly at: string
  /** Its state folder: for the certificate of its authority, which anybody may have. */
  readonly state: string
}

export function rawFacts(podCidrs: string[], change: Partial<ClusterFacts> = {}): ClusterFacts {
  return { podCidrs, serviceCidrs: [], labels: [], version: '0', neededCidrs: [], ...change }
}

/** What the broker answers to Join; rejects with its refusal. */
export async function rawJoin(
  { at, state }: RawBroker,
  { token, cluster, facts }: { readonly token: string; readonly cluster: string; readonly facts: ClusterFacts },
): Promise<RawMember> {
  const ca = readFileSync(join(state, 'ca.crt'))
  const key = createKey()
  const secret = parseJoinToken(token, Date.now()).secret()
  const request = { secret, cluster, csr: Buffer.from(await createCsr(key)), facts, nowMs: Date.now() }
  const client = new Client(at, credentials.createSsl(ca), OPTIONS)
  try {
    const { path, requestSerialize, responseDeserialize } = BrokerService.join
    const response = await new Promise<JoinResponse>((resolve, reject) => {
      client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, (error, answer) => {
        if (answer === undefined) reject(error ?? new Error('no answer'))
        else resolve(answer)
      })
    })
    const identity = [Buffer.from(keyToPem(key)), Buffer.from(certificateToPem(response.certificate))] as const
    return new RawMember(new Client(at, credentials.createSsl(ca, ...identity), OPTIONS), response)
  } finally {
    client.close()
  }
}

/** `InvalidArgument`-like code and the text of a refused join. */
export async function refusalOf(join: Promise<RawMember>): Promise<string> {
  return join.then(
    (member) => {
      member.close()
      return 'taken in'
    },
    (error: unknown) => (error as ServiceError).details,
  )
}

export class RawMember {
  readonly joined: JoinResponse
  readonly #client: Client
  readonly #replies: PublishReply[] = []
  #stream: ClientDuplexStream<PublishMessage, PublishReply> | undefined
  #sequence = 0

  constructor(client: Client, joined: JoinResponse) {
    this.#client = client
    this.joined = joined
  }

  /** Undefined when the broker takes these facts, else why not. */
  async facts(facts: ClusterFacts): Promise<string | undefined> {
    const sequence = await this.#next()
    return this.#say(sequence, { $case: 'facts', value: { sequence, facts } })
  }

  /** The same for a gateway that can be called there. */
  async gateway(cluster: string, address: string): Promise<string | undefined> {
    const sequence = await this.#next()
    const spec = {
      ...{ cluster, node: 'gw', lane: 0, publicKey: Buffer.alloc(32, cluster).toString('base64') },
      candidates: [{ kind: 'private', address, port: 4500 }],
      capabilities: ['wireguard'],
    }
    const body = { body: { $case: 'endpoint', value: spec } } as const
    const record = { namespace: '', name: `${cluster}.gw-lane0`, body }
    return this.#say(sequence, { $case: 'put', value: { sequence, record } })
  }

  close(): void {
    this.#stream?.cancel()
    this.#client.close()
  }

  async #next(): Promise<number> {
    this.#stream ??= await this.#open()
    return (this.#sequence += 1)
  }

  async #open(): Promise<ClientDuplexStream<PublishMessage, PublishReply>> {
    const { path, requestSerialize, responseDeserialize } = BrokerService.publish
    const stream = this.#client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, new Metadata())
    stream.on('data', (reply: PublishReply) => this.#replies.push(reply)).on('error', () => undefined)
    const declare = { setHash: Buffer.alloc(32), count: 1, tellsStatus: false }
    stream.write({ message: { $case: 'declare', value: declare } })
    await eventually(() => this.#replies.length > 0, { say: 'an answer to the declaration' })
    if (this.#replies[0]?.message?.$case === 'sendDigest') {
      stream.write({ message: { $case: 'digest', value: { entries: [], last: true } } })
    }
    return stream
  }

  async #say(sequence: number, message: NonNullable<PublishMessage['message']>): Promise<string | undefined> {
    this.#stream?.write({ message })
    return eventually(
      () => {
        for (const { message: reply } of this.#replies) {
          if (reply?.$case === 'refused' && reply.value.sequence === sequence)
            return { said: `${reply.value.field}: ${reply.value.message}` }
          if (reply?.$case === 'ack' && reply.value.sequence >= sequence) return { said: undefined }
        }
        return undefined
      },
      { say: `an answer to ${sequence}` },
    ).then(({ said }) => said)
  }
}
