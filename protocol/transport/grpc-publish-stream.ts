/** One Publish call, seen from the member. */
import type { ClientDuplexStream } from '@grpc/grpc-js'
import { once } from 'node:events'
import type { PublishMessage, PublishReply } from '../broker-api.ts'
import { BrokerUnreachableError, ProtocolError, type PublishStream } from '../broker-client.ts'
import { CodecError } from '../codec/codec-checks.ts'
import { decodePublishReply, encodePublishMessage } from '../codec/messages-codec.ts'
import { asBuffer, cancelSoon } from './raw-service.ts'

export type Explain = (error: unknown, answered: boolean) => Promise<Error>

export class GrpcPublishStream implements PublishStream {
  readonly replies: AsyncIterable<PublishReply>
  readonly #call: ClientDuplexStream<Buffer, Buffer>
  readonly #explain: Explain
  readonly #ended = new AbortController()
  #answered = false
  #failure: Promise<Error> | undefined

  constructor(call: ClientDuplexStream<Buffer, Buffer>, signal: AbortSignal, explain: Explain) {
    this.#call = call
    this.#explain = explain
    const onAbort = (): void => cancelSoon(call)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    const onEnd = (error?: unknown): void => {
      signal.removeEventListener('abort', onAbort)
      if (error !== undefined) void this.#failed(error)
      this.#ended.abort()
    }
    call.on('error', onEnd)
    call.on('end', () => onEnd())
    this.replies = this.#readReplies()
  }

  async send(message: PublishMessage): Promise<void> {
    await this.#throwIfEnded()
    if (this.#call.write(asBuffer(encodePublishMessage(message)))) return
    await once(this.#call, 'drain', { signal: this.#ended.signal }).catch(() => undefined)
    await this.#throwIfEnded()
  }

  close(): void {
    this.#ended.abort()
    this.#call.end()
    cancelSoon(this.#call)
  }

  async *#readReplies(): AsyncGenerator<PublishReply> {
    try {
      for await (const bytes of this.#call as AsyncIterable<Buffer>) {
        this.#answered = true
        const reply = decodePublishReply(bytes)
        if (reply !== undefined) yield reply
      }
    } catch (error) {
      if (error instanceof CodecError) throw new ProtocolError(`the broker sent what cannot be read: ${error.message}`)
      throw await this.#failed(error)
    }
  }

  /** The reason is looked for once, and is the same for the reader and the writer. */
  #failed(error: unknown): Promise<Error> {
    this.#failure ??= this.#explain(error, this.#answered)
    return this.#failure
  }

  async #throwIfEnded(): Promise<void> {
    if (!this.#ended.signal.aborted) return
    throw (await this.#failure) ?? new BrokerUnreachableError('the stream to the broker has ended')
  }
}
