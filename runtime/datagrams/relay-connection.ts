/**
 * A connection of a gateway to a relay on port 443: WebSocket over TLS, through the proxy of the network if there is
 * one. Nothing secret passes: datagrams are those of a cable, and what proves the gateway is of use once.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { type Socket, connect, isIP } from 'node:net'
import { type TLSSocket, connect as connectTls, rootCertificates } from 'node:tls'
import WebSocket from 'ws'
import { type Clock, abortReason } from '../../reconcile/reconcile.ts'
import { errorOf } from '../runtime.ts'
import { type ProxyChoice, openTunnel } from '../proxy/proxy.ts'
import { DatagramQueue } from './datagram-queue.ts'
import {
  type Challenge,
  type Datagram,
  FRAMES_VERSION,
  type Frame,
  INSTANCE_HEADER,
  MAX_FRAME_BYTES,
  MAX_FRAME_PARTS,
  type Proof,
  REPLACED_CODE,
  type RelayRefusal,
  SUBPROTOCOL,
  decodeFrame,
  encodeFrame,
  readInstance,
} from './frames.ts'

export interface RelayTarget {
  readonly clock: Clock
  readonly proxies: ProxyChoice
  /** `wss://…`, or `ws://…` in a test and behind a proxy on this machine. */
  readonly url: URL
  /** SHA-256 of the relay's public key (SubjectPublicKeyInfo), in hexadecimal. Absent: the authorities of the system. */
  readonly pin?: string
  /** Authorities besides those of the system, in PEM. */
  readonly ca?: string
}

/** The process at the far end of a connection. */
export interface RelayPeer {
  /** readInstance(): any relay can state that of another one. */
  readonly instance: string | undefined
  /** pinOf() of the key that TLS has proven. Undefined: without TLS. */
  readonly key: string | undefined
}

export interface RelayConnectionInit extends RelayTarget {
  /**
   * Whether a connection to this process is wanted, before anything is proven to it: a relay takes one connection of a
   * gateway, so a second one would end the first. Default: it is.
   */
  readonly wants?: (peer: RelayPeer) => boolean
  /** Answers the challenge. Undefined if this end cannot be proven now. */
  readonly prove: (challenge: Challenge) => Proof | undefined
  readonly onDatagram: (datagram: Datagram) => void
  /** The ends that are wanted here and want this end too, all of them. */
  readonly onPresent: (ends: readonly string[]) => void
  /** Datagrams that waited for too long. */
  readonly onDropped?: (count: number) => void
}

/** The relay does not let this gateway in. */
export class RelayRefusedError extends Error {
  readonly why: RelayRefusal
  /** How far the relay's clock is ahead of this one, in milliseconds. */
  readonly aheadMs: number
  constructor(host: string, why: RelayRefusal, aheadMs: number) {
    super(`relay ${host} refuses this gateway: ${REFUSAL_TEXTS[why]}${clockText(why, aheadMs)}`)
    this.name = 'RelayRefusedError'
    this.why = why
    this.aheadMs = aheadMs
  }
}

/** The relay is one to which no connection is wanted: RelayConnectionInit.wants. */
export class RelayNotWantedError extends Error {
  constructor(host: string) {
    super(`relay ${host}: another address leads to the same process`)
    this.name = 'RelayNotWantedError'
  }
}

/** It cannot be reached, or it is not a relay, or not the one that was meant. */
export class RelayUnreachableError extends Error {
  constructor(host: string, problem: string, options?: ErrorOptions) {
    super(`relay ${host}: ${problem}`, options)
    this.name = 'RelayUnreachableError'
  }
}

const REFUSAL_TEXTS: Readonly<Record<RelayRefusal, string>> = {
  malformed: 'it cannot read the proof',
  foreignClusterset: 'no authority that it trusts has signed the certificate of this cluster',
  expired: 'the ticket or the certificate of this cluster has expired',
  wrongClock: 'the clocks of this cluster and of the relay differ',
  notListed: "this gateway is not on its cluster's ticket",
  badProof: 'this gateway has not proven its identity',
  full: 'it has no room',
  memberFull: 'this cluster has as many gateways there as one may have',
  tooFast: 'this cluster connects too often',
}

/** Differences of clocks below it are not worth a word. */
const CLOCK_REPORTED_MS = 120_000

/** By how much the clocks differ, where a refusal may come from that. */
function clockText(why: RelayRefusal, aheadMs: number): string {
  if ((why !== 'expired' && why !== 'wrongClock') || Math.abs(aheadMs) < CLOCK_REPORTED_MS) return ''
  const minutes = Math.round(Math.abs(aheadMs) / 60_000)
  return ` (the clock of the relay is ${minutes} min ${aheadMs > 0 ? 'ahead of' : 'behind'} that of this gateway)`
}

/** From the call to the welcome. */
const OPEN_MS = 8000
/** How often the relay is asked for a sign of life, and how long it may be silent. */
const PING_MS = 2000
const SILENT_MS = 5000

/** How a connection has ended. */
export interface RelayConnectionEnd {
  readonly why: string
  /** After so many milliseconds the relay wants to be called again. Absent: it has not said so. */
  readonly againMs?: number
  /** By the relay's word: another connection of this gateway has taken its place there. */
  readonly isReplaced: boolean
}

export interface RelayConnection {
  /** From the last ping to its answer, in milliseconds. Undefined: none was answered yet. */
  readonly rttMs: number | undefined
  /** Which process it is. Undefined: the relay is of an earlier release, or a proxy in front of it drops the header. */
  readonly instance: string | undefined
  /** Resolves when it has ended. */
  readonly ended: Promise<RelayConnectionEnd>
  /** Sets all ends, by endName(), with which datagrams are to be exchanged. */
  want(ends: readonly string[]): void
  /** Sends to a present end. The octets must not change later. */
  send(end: string, bytes: Buffer): void
  close(): void
}

/** Throws RelayRefusedError, RelayNotWantedError, RelayUnreachableError, ProxyError, or the signal's reason. */
export function connectRelay(init: RelayConnectionInit, signal: AbortSignal): Promise<RelayConnection> {
  return inTime(init, signal, async (either) => {
    const opened = await openSocket(init, either)
    if (init.wants?.(opened) !== false) return await admitted(opened, init, either)
    opened.socket.terminate()
    throw new RelayNotWantedError(init.url.host)
  })
}

/**
 * Which process answers at an address now, without proving anything to it. Undefined: it does not say so. Throws
 * RelayUnreachableError, ProxyError, or the signal's reason.
 */
export function askInstance(target: RelayTarget, signal: AbortSignal): Promise<string | undefined> {
  return inTime(target, signal, async (either) => {
    const { socket, instance } = await openSocket(target, either)
    socket.terminate()
    return instance
  })
}

async function inTime<T>(
  { clock, url: { host } }: RelayTarget,
  signal: AbortSignal,
  run: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController()
  const cancel = clock.setTimer(OPEN_MS, () =>
    late.abort(new RelayUnreachableError(host, `no answer within ${OPEN_MS / 1000} s`)),
  )
  try {
    return await run(AbortSignal.any([signal, late.signal]))
  } finally {
    cancel()
  }
}

interface Opened extends RelayPeer {
  readonly socket: WebSocket
}

async function openSocket(target: RelayTarget, signal: AbortSignal): Promise<Opened> {
  const { url } = target
  const { stream, key } = await openStream(target, signal)
  const bare = new URL(url)
  bare.hash = ''
  const socket = new WebSocket(bare, SUBPROTOCOL, {
    createConnection: () => stream,
    maxPayload: MAX_FRAME_BYTES,
    maxFragments: MAX_FRAME_PARTS,
    perMessageDeflate: false,
    followRedirects: false,
    // Masks protect intermediaries that see plaintext (RFC 6455 section 10.3), and TLS shows them none. A mask of zeros
    // is applied by neither side: real ones take a fifth of the time of both.
    generateMask: (mask) => mask.fill(0),
  })
  return await new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      signal.removeEventListener('abort', onAbort)
      socket.terminate()
      stream.destroy()
      reject(error)
    }
    const onAbort = (): void => fail(abortReason(signal))
    let instance: string | undefined
    socket.on('upgrade', ({ headers }: IncomingMessage) => {
      instance = readInstance(headers[INSTANCE_HEADER])
    })
    socket.on('open', () => {
      signal.removeEventListener('abort', onAbort)
      socket.pause()
      resolve({ socket, instance, key })
    })
    socket.on('unexpected-response', (_request, response: IncomingMessage) => {
      fail(new RelayUnreachableError(url.host, `it answers with status ${response.statusCode ?? 0} and is no relay`))
    })
    // It stays, as a terminated socket emits an error too.
    socket.on('error', (error) => fail(new RelayUnreachableError(url.host, error.message, { cause: error })))
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
  })
}

/** A connected stream, with TLS unless the URL is plain. */
async function openStream(
  { clock, url, pin, ca, proxies }: RelayTarget,
  signal: AbortSignal,
): Promise<{ readonly stream: Socket; readonly key: string | undefined }> {
  signal.throwIfAborted()
  const isTls = url.protocol === 'wss:'
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const to = { host, port: url.port === '' ? (isTls ? 443 : 80) : Number(url.port) }
  const proxy = proxies(to)
  const tcp = proxy === undefined ? connect(to) : await openTunnel({ clock, proxy, to, timeoutMs: OPEN_MS }, signal)
  tcp.setNoDelay(true)
  if (!isTls) {
    if (proxy === undefined) await happens(tcp, 'connect', url.host, signal)
    return { stream: tcp, key: undefined }
  }
  const socket = connectTls({
    socket: tcp,
    host,
    minVersion: 'TLSv1.3',
    ALPNProtocols: ['http/1.1'],
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(ca === undefined ? {} : { ca: [...rootCertificates, ca] }),
    // With a pin the key counts, and not the name and the issuer of the certificate.
    ...(pin === undefined ? {} : { rejectUnauthorized: false }),
  })
  try {
    await happens(socket, 'secureConnect', url.host, signal)
  } catch (error) {
    tcp.destroy()
    throw certificateError(url.host, error, clock.now())
  }
  const key = keyOf(socket)
  if (pin === undefined || isPin(pin, key)) return { stream: socket, key }
  socket.destroy()
  throw new RelayUnreachableError(url.host, 'its key is not the one that the address states')
}

const CERTIFICATE_TEXTS: Readonly<Record<string, string>> = {
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  CERT_HAS_EXPIRED: 'its certificate has expired',
}

/** The same error, with what this gateway takes for the time where that decides. */
function certificateError(host: string, error: unknown, nowMs: number): unknown {
  const { cause } = errorOf(error)
  const text = CERTIFICATE_TEXTS[(cause as NodeJS.ErrnoException | undefined)?.code ?? '']
  // By the day, so that it is said once and not with each call.
  const day = new Date(nowMs).toISOString().slice(0, 10)
  return text === undefined
    ? error
    : new RelayUnreachableError(host, `${text}: it is ${day} (UTC) by the clock of this gateway`, { cause })
}

function happens(socket: Socket, event: 'connect' | 'secureConnect', host: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (): void => {
      socket.off(event, onEvent)
      socket.off('close', onClose)
      signal.removeEventListener('abort', onAbort)
    }
    const onEvent = (): void => {
      settle()
      socket.off('error', fail)
      resolve()
    }
    const fail = (error: Error): void => {
      settle()
      socket.destroy()
      reject(
        error instanceof RelayUnreachableError
          ? error
          : new RelayUnreachableError(host, error.message, { cause: error }),
      )
    }
    const onClose = (): void => fail(new RelayUnreachableError(host, 'it closed the connection'))
    const onAbort = (): void => {
      settle()
      socket.destroy()
      reject(abortReason(signal))
    }
    socket.once(event, onEvent)
    // It stays after a failure, as a destroyed socket may emit an error too.
    socket.on('error', fail)
    socket.once('close', onClose)
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
  })
}

/** The hash of a certificate's public key, as a pin states it. */
export function pinOf(publicKey: Buffer): string {
  return createHash('sha256').update(publicKey).digest('hex')
}

function keyOf(socket: TLSSocket): string | undefined {
  const certificate = socket.getPeerX509Certificate()
  return certificate && pinOf(certificate.publicKey.export({ type: 'spki', format: 'der' }))
}

function isPin(pin: string, found: string | undefined): boolean {
  if (found === undefined) return false
  return pin.length === found.length && timingSafeEqual(Buffer.from(pin), Buffer.from(found))
}

/** Answers the challenge and waits for the welcome. */
function admitted(opened: Opened, init: RelayConnectionInit, signal: AbortSignal): Promise<RelayConnection> {
  const { socket } = opened
  const { host } = init.url
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      signal.removeEventListener('abort', onAbort)
      socket.terminate()
      reject(error)
    }
    const onAbort = (): void => fail(abortReason(signal))
    const onClose = (): void => fail(new RelayUnreachableError(host, 'it closed the connection'))
    const onMessage = (data: WebSocket.RawData): void => {
      try {
        onFrame(decodeFrame(data as Buffer))
      } catch (error) {
        fail(errorOf(error))
      }
    }
    const onFrame = (frame: Frame | undefined): void => {
      switch (frame?.t) {
        case 'challenge': {
          const proof = frame.version === FRAMES_VERSION ? init.prove(frame) : undefined
          if (frame.version !== FRAMES_VERSION)
            fail(new RelayUnreachableError(host, `it speaks version ${frame.version}: expected ${FRAMES_VERSION}`))
          else if (proof === undefined)
            fail(new RelayUnreachableError(host, 'this cluster has no ticket for relays yet'))
          else socket.send(encodeFrame({ t: 'proof', ...proof }))
          return
        }
        case 'refused':
          fail(new RelayRefusedError(host, frame.why, frame.timeMs - init.clock.now()))
          return
        case 'welcome':
          signal.removeEventListener('abort', onAbort)
          socket.off('message', onMessage)
          socket.off('close', onClose)
          resolve(new OpenRelayConnection(opened, init))
          return
        case 'datagrams':
        case 'present':
        case 'proof':
        case 'restarting':
        case 'wants':
        case undefined:
          fail(new RelayUnreachableError(host, 'it sent what no relay sends'))
      }
    }
    socket.on('message', onMessage)
    socket.once('close', onClose)
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    else socket.resume()
  })
}

class OpenRelayConnection implements RelayConnection {
  readonly ended: Promise<RelayConnectionEnd>
  readonly instance: string | undefined
  readonly #socket: WebSocket
  readonly #queue: DatagramQueue
  #wants = ''
  #rttMs: number | undefined

  constructor({ socket, instance }: Opened, { clock, onDatagram, onPresent, onDropped }: RelayConnectionInit) {
    this.instance = instance
    this.#socket = socket
    this.#queue = new DatagramQueue({
      clock,
      send: (frame, onSent) => socket.send(frame, onSent),
      ...(onDropped === undefined ? {} : { onDropped }),
    })
    const { promise, resolve } = Promise.withResolvers<RelayConnectionEnd>()
    this.ended = promise
    let heardMs = clock.monotonic()
    let pingedMs: number | undefined
    let againMs: number | undefined
    let why = 'the relay closed the connection'
    const end = (problem: string): void => {
      why = problem
      socket.terminate()
    }
    const look = (): void => {
      if (clock.monotonic() - heardMs > SILENT_MS) end('the relay is silent')
      else {
        pingedMs = clock.monotonic()
        socket.ping()
        cancel = clock.setTimer(PING_MS, look)
      }
    }
    let cancel = clock.setTimer(PING_MS, look)
    socket.on('pong', () => {
      heardMs = clock.monotonic()
      if (pingedMs !== undefined) this.#rttMs = heardMs - pingedMs
    })
    socket.on('message', (data) => {
      heardMs = clock.monotonic()
      // An error thrown in a listener would end the process.
      try {
        const frame = decodeFrame(data as Buffer)
        if (frame?.t === 'datagrams') for (const one of frame.datagrams) onDatagram(one)
        else if (frame?.t === 'present') onPresent(frame.ends)
        else if (frame?.t === 'restarting') againMs = frame.againMs
        else end('the relay sent what no relay sends')
      } catch (error) {
        end(errorOf(error).message)
      }
    })
    socket.once('close', (code: number) => {
      cancel()
      this.#queue.close()
      const isReplaced = code === REPLACED_CODE
      if (isReplaced) why = 'another connection of this gateway has taken its place'
      resolve({ why, ...(againMs === undefined ? {} : { againMs }), isReplaced })
    })
  }

  get rttMs(): number | undefined {
    return this.#rttMs
  }

  want(ends: readonly string[]): void {
    const text = ends.join()
    if (text === this.#wants || this.#socket.readyState !== WebSocket.OPEN) return
    this.#wants = text
    this.#socket.send(encodeFrame({ t: 'wants', ends }))
  }

  send(end: string, bytes: Buffer): void {
    this.#queue.push(end, bytes)
  }

  close(): void {
    this.#socket.terminate()
  }
}
