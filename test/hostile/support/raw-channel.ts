/**
 * A client made from protocol/broker.proto with grpc-js alone: it also sends what no agent of ours would. This file has
 * its connection and its single calls; raw-join.ts, raw-publish.ts and raw-watch.ts have the rest.
 */
import { Client, InterceptingCall, type Interceptor, Metadata, credentials, status } from '@grpc/grpc-js'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type PeerCertificate, checkServerIdentity as checkTls } from 'node:tls'
import { PROCESS_HEADER } from '../../../protocol/identity/process-mark.ts'

const SERVER_NAME = 'broker.sealane.internal'

export interface RawBroker {
  /** The broker's address, as `127.0.0.1:port`. */
  readonly address: string
  /** The broker's state folder, read for its CA certificate, which is public. */
  readonly state: string
  /** The server name in the TLS hello. Absent: no name, as agents of earlier releases send it. */
  readonly serverName?: string
}

/** An identity as PEM texts, so that it can be passed to another process. */
export interface RawIdentity {
  readonly cluster: string
  readonly key: string
  readonly cert: string
  readonly ca: string
  /** The mark of the process that shows it (process-mark.ts). Absent: it shows none. */
  readonly process?: string
}

export interface Status {
  readonly code: number
  readonly details: string
}

/** The status of a call that did not end with `OK`. */
export class RawRefusal extends Error implements Status {
  readonly code: number
  readonly details: string
  constructor({ code, details }: Status) {
    super(textOf({ code, details }))
    this.name = 'RawRefusal'
    this.code = code
    this.details = details
  }
}

/** The status as `CODE details`. */
export function textOf({ code, details }: Status): string {
  return `${status[code]} ${details}`
}

/** The status of a failed call, as textOf() writes it, or `ok`. */
export async function outcomeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work
    return 'ok'
  } catch (error) {
    return textOf(error as Status)
  }
}

const DEADLINE_MS = 20_000

/** The serializer of calls whose messages are bytes already. */
export const same = (bytes: Buffer): Buffer => bytes

/** A channel of its own, with the certificate of a member or without one. The broker identifies the client by it. */
export function openChannel({ address, state, serverName = SERVER_NAME }: RawBroker, identity?: RawIdentity): Client {
  const ca = readFileSync(join(state, 'ca.crt'))
  const own = identity === undefined ? [] : [Buffer.from(identity.key), Buffer.from(identity.cert)]
  const [key = null, certificate = null] = own
  const checkServerIdentity = (_name: string, shown: PeerCertificate) => checkTls(SERVER_NAME, shown)
  return new Client(`ipv4:${address}`, credentials.createSsl(ca, key, certificate, { checkServerIdentity }), {
    'grpc.ssl_target_name_override': serverName,
    'grpc.use_local_subchannel_pool': 1,
    'grpc.enable_retries': 0,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 300,
    ...(identity?.process === undefined ? {} : { interceptors: [marking(identity.process)] }),
  })
}

function marking(mark: string): Interceptor {
  return (options, nextCall) =>
    new InterceptingCall(nextCall(options), {
      start: (metadata, listener, next) => {
        metadata.set(PROCESS_HEADER, mark)
        next(metadata, listener)
      },
    })
}

/** Makes one unary call, and returns the status if it is refused. */
export function callUnary(channel: Client, path: string, bytes: Buffer): Promise<Buffer | Status> {
  return new Promise((resolve) => {
    const deadline = Date.now() + DEADLINE_MS
    channel.makeUnaryRequest(path, same, same, bytes, new Metadata(), { deadline }, (error, answer) => {
      resolve(error === null ? (answer ?? Buffer.alloc(0)) : { code: error.code, details: error.details })
    })
  })
}

/** A method of the generated service. */
export interface RawMethod<A, B> {
  readonly path: string
  readonly requestSerialize: (request: A) => Buffer
  readonly responseDeserialize: (bytes: Buffer) => B
}

/** callUnary() with messages instead of bytes. Throws RawRefusal. */
export async function callMethod<A, B>(channel: Client, method: RawMethod<A, B>, request: A): Promise<B> {
  const answer = await callUnary(channel, method.path, method.requestSerialize(request))
  if (Buffer.isBuffer(answer)) return method.responseDeserialize(answer)
  throw new RawRefusal(answer)
}
