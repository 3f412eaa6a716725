/**
 * Output of a Watch stream. A message is framed once for all streams, and grpc-js sends the frame unchanged. At most
 * two frames are queued for a slow reader, and all streams share the same bytes.
 */
import type { ServerWritableStream } from '@grpc/grpc-js'
import { MAX_MESSAGE_BYTES, type WatchMessage } from '../protocol.ts'
import { encodeWatchMessage } from '../codec/codec.ts'

const ENVELOPE_BYTES = 5
/** The high-water mark of grpc-js would allow 16 queued frames. */
const MAX_WAITING = 2

const frames = new WeakMap<WatchMessage, Buffer>()

/**
 * Returns the message in gRPC framing. The result is cached per object, so a message must not be changed afterwards.
 */
export function framed(message: WatchMessage): Buffer {
  let frame = frames.get(message)
  if (frame === undefined) {
    const bytes = encodeWatchMessage(message)
    frame = Buffer.allocUnsafeSlow(ENVELOPE_BYTES + bytes.length)
    frame.writeUInt8(0, 0)
    frame.writeUInt32BE(bytes.length, 1)
    frame.set(bytes, ENVELOPE_BYTES)
    frames.set(message, frame)
  }
  return frame
}

export class WatchOutput {
  readonly #call: ServerWritableStream<Buffer, Buffer>
  #waiting = 0
  #onRoom: () => void = () => undefined
  readonly #flushed = (): void => {
    this.#waiting -= 1
    this.#onRoom()
  }

  /** Takes a stream on which passFrames() was called. */
  constructor(call: ServerWritableStream<Buffer, Buffer>) {
    this.#call = call
  }

  get isFull(): boolean {
    return this.#waiting >= MAX_WAITING
  }

  write(frame: Buffer): void {
    this.#waiting += 1
    this.#call.write(frame, this.#flushed)
  }

  /** Resolves when a queued frame has been sent. Call it only while `isFull`. */
  room(): Promise<void> {
    return new Promise((resolve) => (this.#onRoom = resolve))
  }
}

/**
 * Size in bytes of the pieces of a frame, each one TLS record. A piece is written after the kernel has taken the
 * previous one. For the life of a connection, Node keeps as much memory as was ever encrypted at once.
 */
export const PIECE_BYTES = 15 * 1024

/**
 * The parts of a grpc-js call that passFrames() replaces. The call writes the result of serializeMessage() unchanged,
 * and calls `flushed` when it has been sent, but not after an error or a cancellation. It refuses messages above the
 * size limit.
 */
interface InnerCall {
  serializeMessage(frame: Buffer): Buffer
  sendMessage(frame: Buffer, flushed: () => void): void
  sendStatus(status: unknown): void
}

/**
 * Makes grpc-js send the messages of this call unchanged. Otherwise it would copy every message for every stream to add
 * the frame header, and it has no option to avoid that. Takes the call that an interceptor receives.
 */
export function passFrames(call: unknown): void {
  const inner = call as Partial<InnerCall>
  const send = inner.sendMessage?.bind(call)
  const end = inner.sendStatus?.bind(call)
  if (inner.serializeMessage === undefined || send === undefined || end === undefined)
    throw new Error('grpc-js has no serializeMessage, sendMessage or sendStatus any more: see watch-output.ts')
  let isEnded = false
  inner.serializeMessage = (frame) => frame
  // A deadline of the caller can end the stream in the middle of a frame. Nothing may be written after that.
  inner.sendStatus = (status) => {
    isEnded = true
    end(status)
  }
  const sendFrom = (frame: Buffer, at: number, flushed: () => void): void => {
    const next = at + PIECE_BYTES
    if (next >= frame.length) {
      send(frame.subarray(at), flushed)
      return
    }
    send(frame.subarray(at, next), () => {
      if (!isEnded) sendFrom(frame, next, flushed)
    })
  }
  inner.sendMessage = (frame, flushed) => {
    if (frame.length > ENVELOPE_BYTES + MAX_MESSAGE_BYTES) send(frame, flushed)
    else sendFrom(frame, 0, flushed)
  }
}
