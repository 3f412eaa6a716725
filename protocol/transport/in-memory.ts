/**
 * Connects a BrokerClient to a BrokerApi without sockets, for tests and for a process that contains both. Messages pass
 * through the codecs, so that whatever works here also works on the wire. The link can be cut and mended.
 */
import { SerialQueue } from '../../reconcile/reconcile.ts'
import {
  type BrokerApi,
  type BrokerClient,
  BrokerUnreachableError,
  type JoinLook,
  type JoinRequest,
  type JoinResponse,
  type Peer,
  type PublishMessage,
  type PublishReply,
  type PublishStream,
  RefusedError,
  type RenewResponse,
  type WatchMessage,
  type WatchRequest,
  closedError,
} from '../protocol.ts'
import { CodecError, splitBatch, splitNeed } from '../codec/codec.ts'
import * as codec from '../codec/codec.ts'

export interface InMemoryLink {
  /** Returns a client. All clients of this link work only while it is up. */
  connect(): BrokerClient
  /** Breaks every stream. Calls fail with BrokerUnreachableError until mend(). */
  cut(): void
  mend(): void
}

export function inMemoryBroker(api: BrokerApi, peer: Peer): InMemoryLink {
  let cut = new AbortController()
  let up = true
  return {
    connect: () => new InMemoryClient(api, peer, () => (up ? cut.signal : AbortSignal.abort(gone()))),
    cut() {
      up = false
      cut.abort(gone())
    },
    mend() {
      up = true
      cut = new AbortController()
    },
  }
}

function gone(): BrokerUnreachableError {
  return new BrokerUnreachableError('the broker has stopped')
}

class InMemoryClient implements BrokerClient {
  readonly #api: BrokerApi
  readonly #peer: Peer
  readonly #link: () => AbortSignal
  readonly #closed = new AbortController()

  constructor(api: BrokerApi, peer: Peer, link: () => AbortSignal) {
    this.#api = api
    this.#peer = peer
    this.#link = link
  }

  async join(request: JoinRequest, signal: AbortSignal): Promise<JoinResponse> {
    this.#check(signal)
    const decoded = asServer(() => codec.decodeJoinRequest(codec.encodeJoinRequest(request)))
    const response = await this.#api.join(decoded, this.#peer.address)
    return codec.decodeJoinResponse(codec.encodeJoinResponse(response))
  }

  async lookAtJoin(request: Omit<JoinRequest, 'csr' | 'look'>, signal: AbortSignal): Promise<JoinLook> {
    this.#check(signal)
    const asked = codec.encodeJoinRequest({ ...request, csr: new Uint8Array(), look: true })
    const decoded = asServer(() => codec.decodeJoinRequest(asked))
    const look = await this.#api.lookAtJoin(decoded, this.#peer.address)
    return codec.decodeJoinLook(codec.encodeJoinLook(look))
  }

  async withdrawJoin(request: JoinRequest, signal: AbortSignal): Promise<void> {
    this.#check(signal)
    const asked = codec.encodeJoinRequest({ ...request, withdraw: true })
    await this.#api.withdrawJoin?.(
      asServer(() => codec.decodeJoinRequest(asked)),
      this.#peer.address,
    )
  }

  async renew(csr: Uint8Array, signal: AbortSignal): Promise<RenewResponse> {
    this.#check(signal)
    const response = await this.#api.renew(this.#peer, csr)
    return codec.decodeRenewResponse(codec.encodeRenewResponse(response))
  }

  async leave(signal: AbortSignal): Promise<void> {
    this.#check(signal)
    await this.#api.leave(this.#peer)
  }

  publish(signal: AbortSignal): PublishStream {
    return new InMemoryPublishStream(this.#api, this.#peer, this.#check(signal))
  }

  async *watch(request: WatchRequest, signal: AbortSignal): AsyncGenerator<WatchMessage> {
    const ended = this.#check(signal)
    const decoded = codec.decodeWatchRequest(codec.encodeWatchRequest(request))
    let revision = decoded.resume?.revision ?? 0
    for await (const message of this.#api.watch(this.#peer, decoded, ended)) {
      if (message.t === 'reset' && !message.resumed) revision = 0
      for (const part of splitBatch(message, revision)) {
        const known = codec.decodeWatchMessage(codec.encodeWatchMessage(part))
        ended.throwIfAborted()
        if (known !== undefined) yield known
      }
      if (message.t === 'batch') revision = message.revision
    }
    ended.throwIfAborted()
  }

  close(): void {
    this.#closed.abort(closedError())
  }

  #check(signal: AbortSignal): AbortSignal {
    const any = AbortSignal.any([signal, this.#link(), this.#closed.signal])
    any.throwIfAborted()
    return any
  }
}

class InMemoryPublishStream implements PublishStream {
  readonly replies: AsyncIterable<PublishReply>
  readonly #queue: PublishReply[] = []
  readonly #ended = new AbortController()
  readonly #session: ReturnType<BrokerApi['openPublish']>
  #wake: () => void = () => undefined
  /** Handles messages one after another, as a gRPC stream does. */
  readonly #messages = new SerialQueue()

  constructor(api: BrokerApi, peer: Peer, signal: AbortSignal) {
    const onReply = (reply: PublishReply): void => {
      for (const part of splitNeed(reply)) {
        const known = codec.decodePublishReply(codec.encodePublishReply(part))
        if (known !== undefined && !this.#ended.signal.aborted) this.#queue.push(known)
      }
      this.#wake()
    }
    this.#session = api.openPublish(peer, onReply, (reason) => this.#end(reason))
    const onAbort = (): void => this.#end(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    this.#ended.signal.addEventListener('abort', () => {
      signal.removeEventListener('abort', onAbort)
      this.#session.onEnd()
    })
    this.replies = this.#read()
  }

  async send(message: PublishMessage): Promise<void> {
    this.#ended.signal.throwIfAborted()
    const bytes = codec.encodePublishMessage(message)
    const handled = this.#messages.run(async () => {
      if (this.#ended.signal.aborted) return
      await this.#session.onMessage(
        asServer(() => codec.decodePublishMessage(bytes)),
        bytes.length,
      )
    })
    await handled.catch((error: unknown) => this.#end(error))
  }

  close(): void {
    this.#end(undefined)
  }

  #end(reason: unknown): void {
    this.#ended.abort(reason ?? new BrokerUnreachableError('the stream to the broker was closed'))
    this.#wake()
  }

  async *#read(): AsyncGenerator<PublishReply> {
    for (;;) {
      const woken = new Promise<void>((resolve) => (this.#wake = resolve))
      for (let reply = this.#queue.shift(); reply !== undefined; reply = this.#queue.shift()) yield reply
      if (this.#ended.signal.aborted) throw this.#ended.signal.reason
      if (this.#queue.length === 0) await woken
    }
  }
}

/** Converts a CodecError to the RefusedError that the gRPC server would answer with. */
function asServer<T>(decode: () => T): T {
  try {
    return decode()
  } catch (error) {
    if (error instanceof CodecError) throw new RefusedError('InvalidValue', error.field, error.message)
    throw error
  }
}
