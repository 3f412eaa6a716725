/**
 * One TLS connection with gRPC calls, as small as a client can be: a thousand of them share the machine with what is
 * measured.
 */
import { type SecureContext, type TLSSocket, connect } from 'node:tls'
import * as h2 from './h2-frames.ts'

/** How many bytes may be in flight to the client before it acknowledges them. */
const WINDOW = 1024 * 1024
const HTTP2_WINDOW = 65_535
const EMPTY = Buffer.alloc(0)
const CANCEL = Buffer.from([0, 0, 0, 8])

export interface LeanChannelInit {
  readonly port: number
  readonly servername: string
  readonly context: SecureContext
  /** A connection whose handshake takes longer is closed. */
  readonly timeoutMs: number
}

export interface LeanCall {
  send(message: Uint8Array): void
  /** Half-closes the call: the client sends no further message. */
  end(): void
  cancel(): void
}

interface Open {
  readonly onMessage: (bytes: Buffer) => void
  readonly onEnd: () => void
  /** The parts of a message that is incomplete. */
  parts: Buffer[]
  length: number
  taken: number
  window: number
  waiting: Buffer[]
}

export class LeanChannel {
  readonly #socket: TLSSocket
  readonly #authority: string
  readonly #calls = new Map<number, Open>()
  #rest: Buffer = EMPTY
  #next = 1
  #taken = 0
  #window = HTTP2_WINDOW
  #initialWindow = HTTP2_WINDOW
  #bytes = 0
  /** Why it ended; undefined while it is open. */
  failure: string | undefined

  /** `onClose` is called once. */
  constructor({ port, servername, context, timeoutMs }: LeanChannelInit, onClose: (why: string) => void) {
    this.#authority = servername
    const socket = connect({
      ...{ host: '127.0.0.1', port, servername, secureContext: context, ALPNProtocols: ['h2'] },
      checkServerIdentity: () => undefined,
      rejectUnauthorized: false,
    })
    this.#socket = socket
    const timer = setTimeout(() => socket.destroy(new Error('handshake timed out')), timeoutMs)
    socket.setNoDelay(true)
    socket.once('secureConnect', () => clearTimeout(timer))
    socket.on('data', (bytes: Buffer) => this.#onData(bytes))
    socket.once('error', (error) => (this.failure = error.message))
    socket.once('close', () => {
      clearTimeout(timer)
      this.failure ??= 'closed'
      for (const call of this.#calls.values()) call.onEnd()
      this.#calls.clear()
      onClose(this.failure)
    })
    socket.write(h2.preface(WINDOW))
  }

  /** The bytes received on the socket, TLS included. */
  get bytesRead(): number {
    return this.#socket.bytesRead
  }

  /** The bytes of messages. */
  get messageBytes(): number {
    return this.#bytes
  }

  call(path: string, onMessage: (bytes: Buffer) => void, onEnd: () => void): LeanCall {
    const stream = this.#next
    this.#next += 2
    const window = this.#initialWindow
    this.#calls.set(stream, { onMessage, onEnd, parts: [], length: 0, taken: 0, window, waiting: [] })
    this.#socket.write(h2.callHeaders(stream, path, this.#authority))
    return {
      send: (bytes) => this.#send(stream, h2.message(bytes)),
      end: () => void this.#socket.write(h2.frame(h2.DATA, h2.END_STREAM, stream, EMPTY)),
      cancel: () => {
        this.#calls.delete(stream)
        this.#socket.write(h2.frame(h2.RST_STREAM, 0, stream, CANCEL))
      },
    }
  }

  close(): void {
    this.#socket.destroy()
  }

  /** Stops reading, as a stalled reader does. */
  pause(): void {
    this.#socket.pause()
  }

  #send(stream: number, bytes: Buffer): void {
    const call = this.#calls.get(stream)
    if (call === undefined) return
    for (let at = 0; at < bytes.length; at += 16_384) call.waiting.push(bytes.subarray(at, at + 16_384))
    this.#flush(stream, call)
  }

  #flush(stream: number, call: Open): void {
    for (let next = call.waiting[0]; next !== undefined; next = call.waiting[0]) {
      if (next.length > Math.min(call.window, this.#window)) return
      call.waiting.shift()
      call.window -= next.length
      this.#window -= next.length
      this.#socket.write(h2.frame(h2.DATA, 0, stream, next))
    }
  }

  #onData(bytes: Buffer): void {
    const all = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes])
    this.#rest = h2.takeFrames(all, (frame) => this.#onFrame(frame))
  }

  #onFrame({ type, flags, stream, payload }: h2.Frame): void {
    const call = this.#calls.get(stream)
    switch (type) {
      case h2.DATA:
        if (call !== undefined) this.#onBytes(stream, call, payload)
        break
      case h2.RST_STREAM:
        this.#ended(stream)
        return
      case h2.SETTINGS:
        if ((flags & h2.ACK) === 0) this.#onSettings(payload)
        return
      case h2.PING:
        if ((flags & h2.ACK) === 0) this.#socket.write(h2.frame(h2.PING, h2.ACK, 0, payload))
        return
      case h2.WINDOW_UPDATE:
        this.#onWindow(stream, payload.readUInt32BE())
        return
    }
    if ((type === h2.DATA || type === h2.HEADERS) && (flags & h2.END_STREAM) !== 0) this.#ended(stream)
  }

  #onSettings(payload: Buffer): void {
    for (let at = 0; at + 6 <= payload.length; at += 6) {
      if (payload.readUInt16BE(at) !== 4) continue
      const window = payload.readUInt32BE(at + 2)
      for (const call of this.#calls.values()) call.window += window - this.#initialWindow
      this.#initialWindow = window
    }
    this.#socket.write(h2.frame(h2.SETTINGS, h2.ACK, 0, EMPTY))
  }

  #onWindow(stream: number, by: number): void {
    const one = this.#calls.get(stream)
    if (one !== undefined) one.window += by
    else if (stream === 0) this.#window += by
    for (const [id, call] of this.#calls) this.#flush(id, call)
  }

  #onBytes(stream: number, call: Open, payload: Buffer): void {
    this.#bytes += payload.length
    call.taken += payload.length
    this.#taken += payload.length
    if (call.taken > WINDOW / 2) {
      this.#socket.write(h2.windowUpdate(stream, call.taken))
      call.taken = 0
    }
    if (this.#taken > WINDOW / 2) {
      this.#socket.write(h2.windowUpdate(0, this.#taken))
      this.#taken = 0
    }
    call.parts.push(payload)
    call.length += payload.length
    this.#takeMessages(call)
  }

  #takeMessages(call: Open): void {
    for (;;) {
      const first = call.parts[0]
      if (first === undefined || call.length < 5) return
      const head = first.length >= 5 ? first : Buffer.concat(call.parts)
      const size = 5 + head.readUInt32BE(1)
      if (call.length < size) return
      const all = call.parts.length === 1 ? head : Buffer.concat(call.parts)
      call.parts = all.length === size ? [] : [all.subarray(size)]
      call.length = all.length - size
      call.onMessage(all.subarray(5, size))
    }
  }

  #ended(stream: number): void {
    const call = this.#calls.get(stream)
    this.#calls.delete(stream)
    call?.onEnd()
  }
}
