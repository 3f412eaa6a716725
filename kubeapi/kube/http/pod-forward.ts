/**
 * Opens connections to ports of pods with the API server's portforward subresource over a WebSocket.
 *
 * The subprotocol is v4.channel.k8s.io. The first byte of each message is its channel: 0 carries the data both ways, 1
 * the error text of the node. Each channel that the server sends begins with the port, two bytes in little-endian
 * order.
 *
 * Servers from 1.31 on also tunnel SPDY through a WebSocket (SPDY/3.1+portforward.k8s.io), but only with feature gate
 * PortForwardWebsockets, which is beta and can be off; version 1.36 may leave the tunnel to the kubelet. Every server
 * and every kubelet from 1.31 to 1.36 passes v4.channel.k8s.io on unchanged to the container runtime, whatever the
 * gates, and all runtimes serve it with the streaming library of Kubernetes. SPDY's one advantage is that a client can
 * end its direction alone; this has no effect, since containerd does not tell the pod and closes both directions after
 * one second.
 */
import { Duplex } from 'node:stream'
import type WebSocket from 'ws'
import { type Clock, abortReason } from '../../../reconcile/reconcile.ts'
import { errorOf } from '../../../runtime/runtime.ts'
import { type RequestLine, KubeError, errorFromConnection, oneLine } from '../kube-error.ts'
import { type PodSocketDeps, openPodSocket, serverTitle } from './pod-socket.ts'

export interface PodPort {
  readonly namespace: string
  readonly pod: string
  /** TCP port on the loopback of the pod. */
  readonly port: number
}

/** Of the channels of the first port. */
const DATA = 0
const ERROR = 1
const PORT_BYTES = 2
/** The server holds each message in memory. */
const MAX_MESSAGE_BYTES = 64 << 10
/** Limit for silence of the pod after our side has ended, as the protocol cannot tell the pod. */
const HALF_CLOSED_MS = 10_000
/** Close codes of a server that has finished: normal, and without a code (RFC 6455 section 7.4.1). */
const FINISHED = [1000, 1005]

/**
 * Opens one connection to one port. It resolves when the server has accepted the request; the node connects to the
 * port after that, so that a port where nothing listens is an error of the stream.
 *
 * The user needs the right to get `pods/portforward`, and from Kubernetes 1.35 on also to create it, which is what SPDY
 * always needed.
 *
 * Both directions have back-pressure. The stream ends when the pod ends the connection. Its own end() sends what was
 * written and keeps reading; the pod cannot be told, so the stream fails when the pod then sends nothing for 10 s.
 * destroy() closes the connection at once.
 *
 * Throws KubeError if the server refuses the request or does not answer within 10 s. The stream fails with KubeError,
 * reason ForwardFailed, if the node reports an error or the connection breaks. When `signal` aborts, the promise
 * rejects with its reason, and an open stream fails with it.
 */
export async function forwardToPod(
  { clock, access }: PodSocketDeps,
  { namespace, pod, port }: PodPort,
  signal: AbortSignal,
): Promise<Duplex> {
  const asked: RequestLine = { verb: 'forward', title: `Pod ${namespace}/${pod} port ${port}` }
  const protocols = ['v4.channel.k8s.io']
  const place = { asked, namespace, pod, subresource: `portforward?ports=${port}`, protocols }
  const socket = await openPodSocket({ clock, access }, place, signal)
  if (signal.aborted) {
    socket.terminate()
    throw abortReason(signal)
  }
  return new ForwardStream({ clock, socket, asked, server: serverTitle(access), port, signal })
}

/** What a message has brought. The bytes are empty if it has only a part of the port. */
export interface ChannelPart {
  readonly channel: 'data' | 'error'
  readonly bytes: Buffer
}

/** Removes the framing of received messages. */
export class PortChannels {
  readonly #port: number
  /** What has been received of the port, for each channel. */
  readonly #heads = [Buffer.alloc(0), Buffer.alloc(0)]

  constructor(port: number) {
    this.#port = port
  }

  /** Throws Error if the message is not of this protocol, or of another port. */
  take(message: Buffer): ChannelPart {
    const channel = message[0]
    const head = channel === undefined ? undefined : this.#heads[channel]
    if (channel === undefined || head === undefined) throw new Error(`message of unknown channel ${channel ?? 'none'}`)
    const missing = PORT_BYTES - head.length
    const bytes = message.subarray(1 + missing)
    if (missing > 0) {
      const whole = Buffer.concat([head, message.subarray(1, 1 + missing)])
      this.#heads[channel] = whole
      if (whole.length === PORT_BYTES && whole.readUInt16LE() !== this.#port) {
        throw new Error(`data of port ${whole.readUInt16LE()}`)
      }
    }
    return { channel: channel === ERROR ? 'error' : 'data', bytes }
  }
}

/** The messages that carry `data` to the pod. */
export function* dataMessages(data: Buffer): Generator<Buffer> {
  for (let at = 0; at < data.length; at += MAX_MESSAGE_BYTES) {
    yield Buffer.concat([Buffer.of(DATA), data.subarray(at, at + MAX_MESSAGE_BYTES)])
  }
}

interface StreamInit {
  readonly clock: Clock
  /** Open and paused. */
  readonly socket: WebSocket
  readonly asked: RequestLine
  readonly server: string
  readonly port: number
  readonly signal: AbortSignal
}

class ForwardStream extends Duplex {
  readonly #init: StreamInit
  readonly #channels: PortChannels
  readonly #onAbort = (): void => void this.destroy(abortReason(this.#init.signal))
  #cancelSilence = (): void => undefined
  /** The reader has taken everything and waits for more. */
  #reading = false
  /** The pod has ended the connection. The reader may not have taken everything yet. */
  #finished = false

  constructor(init: StreamInit) {
    // When the pod has ended the connection, our side ends too.
    super({ allowHalfOpen: false })
    this.#init = init
    this.#channels = new PortChannels(init.port)
    const { socket, asked, server, signal } = init
    socket.on('message', (data: Buffer) => this.#take(data))
    socket.on('error', (error) => this.destroy(errorFromConnection(asked, server, error)))
    socket.on('close', (code: number) => {
      this.#finished = FINISHED.includes(code)
      if (this.#finished) this.push(null)
      else this.destroy(this.#failed('the connection ended before the pod closed it'))
    })
    signal.addEventListener('abort', this.#onAbort, { once: true })
  }

  override _read(): void {
    this.#reading = true
    this.#init.socket.resume()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#send(chunk).then(
      () => done(),
      (error: unknown) => {
        // What is sent to a pod that has ended is lost, and must not take from the reader what the pod sent before.
        if (this.#finished) done()
        else done(this.#failed(`nothing more can be sent: ${errorOf(error).message}`))
      },
    )
  }

  override _final(done: () => void): void {
    this.#awaitPod()
    done()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#cancelSilence()
    this.#init.signal.removeEventListener('abort', this.#onAbort)
    this.#init.socket.terminate()
    done(error)
  }

  #take(message: Buffer): void {
    try {
      const { channel, bytes } = this.#channels.take(message)
      if (bytes.length === 0 || this.destroyed) return
      if (channel === 'error') throw new Error(oneLine(bytes.toString('utf8')))
      if (this.writableFinished) this.#awaitPod()
      if (this.push(bytes)) return
      this.#reading = false
      this.#init.socket.pause()
    } catch (error) {
      this.destroy(this.#failed(errorOf(error).message))
    }
  }

  /** Sends one message when the socket has accepted the previous one. */
  async #send(data: Buffer): Promise<void> {
    for (const message of dataMessages(data)) {
      await new Promise<void>((resolve, reject) => {
        this.#init.socket.send(message, (error) => (error == null ? resolve() : reject(error)))
      })
    }
  }

  /** Our side has ended. The reader may take as long as it likes, the pod may not. */
  #awaitPod(): void {
    this.#cancelSilence()
    const silence = `the pod sent nothing for ${HALF_CLOSED_MS / 1000} s after our side had ended`
    this.#cancelSilence = this.#init.clock.setTimer(HALF_CLOSED_MS, () => {
      if (this.#reading) this.destroy(this.#failed(silence))
      else this.#awaitPod()
    })
  }

  #failed(message: string): KubeError {
    const { verb, title } = this.#init.asked
    return new KubeError(`${verb} ${title}: ${message}`, { code: 'Unavailable', status: 0, reason: 'ForwardFailed' })
  }
}
