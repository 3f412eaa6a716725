/**
 * What goes out on a Watch stream. A message is framed once, however many streams get it, and grpc-js passes it on as it
 * is; a slow reader has two of them waiting and no more, and they are the same bytes for all.
 */
import type { ServerWritableStream } from '@grpc/grpc-js'
import { MAX_MESSAGE_BYTES, type WatchMessage } from '../protocol.ts'
import { encodeWatchMessage } from '../codec/codec.ts'

const ENVELOPE_BYTES = 5
/** grpc-js' own mark would let sixteen pile up. */
const MAX_WAITING = 2

const frames = new WeakMap<WatchMessage, Buffer>()

/** The message as it is on the wire, in gRPC's envelope. The same bytes for the same object: it must not be changed. */
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

  /** The stream must be one of passFrames(). */
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

  /** Resolves when one of those that wait has gone out. To be called when it is full. */
  room(): Promise<void> {
    return new Promise((resolve) => (this.#onRoom = resolve))
  }
}

/**
 * A frame is handed down in pieces of so many octets, each when the one before is with the kernel. Node keeps for each
 * connection, as long as it lasts, as much memory as was ever encrypted for it at once; a piece is one TLS record.
 */
export const PIECE_BYTES = 15 * 1024

/**
 * Of a call of grpc-js. It writes what serializeMessage() gives as it is, and calls back when that has gone out: not
 * after an error or a cancel. It refuses what is larger than a message may be.
 */
interface InnerCall {
  serializeMessage(frame: Buffer): Buffer
  sendMessage(frame: Buffer, flushed: () => void): void
  sendStatus(status: unknown): void
}

/**
 * Has grpc-js take messages of this call as they are: it copies each one of each stream to put the envelope before it,
 * and has no option against that. Takes the call that an interceptor is given.
 */
export function passFrames(call: unknown): void {
  const inner = call as Partial<InnerCall>
  const send = inner.sendMessage?.bind(call)
  const end = inner.sendStatus?.bind(call)
  if (inner.serializeMessage === undefined || send === undefined || end === undefined)
    throw new Error('grpc-js has no serializeMessage, sendMessage or sendStatus any more: see watch-output.ts')
  let isEnded = false
  inner.serializeMessage = (frame) => frame
  // A deadline that the caller set ends the stream in the middle of a frame: nothing may be written after that.
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
