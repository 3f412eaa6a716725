/** The five calls: bytes in, BrokerApi, bytes out. Every failure becomes a status; nothing is thrown at grpc-js. */
import type { Readable } from 'node:stream'
import type {
  ServerDuplexStream,
  ServerUnaryCall,
  ServerWritableStream,
  UntypedServiceImplementation,
  sendUnaryData,
} from '@grpc/grpc-js'
import { type Clock, orAborted } from '../../reconcile/reconcile.ts'
import { reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import {
  type BrokerApi,
  BrokerUnreachableError,
  type Peer,
  type PublishReply,
  type PublishSession,
  RefusedError,
} from '../protocol.ts'
import * as codec from '../codec/codec.ts'
import { fits, splitBatch, splitNeed } from '../codec/codec.ts'
import { PROCESS_HEADER, markHashOf } from '../identity/identity.ts'
import { reasonField } from './error-reason.ts'
import { type PeerValidation, expiredError, peerAddress, peerOf, requireMember } from './peer-check.ts'
import { asBuffer } from './raw-service.ts'
import type { ServerMetrics } from './server-metrics.ts'
import { errorToStatus, isForPeer } from './status-codes.ts'
import { WatchOutput, framed } from './watch-output.ts'

/**
 * Reads a call message by message. A stream's own async iterator destroys the stream when it fails, and what was to be
 * written to it is lost: acknowledgements under way, and with them the status that the call ends with.
 */
class PulledMessages {
  readonly #call: Readable
  #ended = false
  #wake: () => void = () => undefined

  constructor(call: Readable) {
    this.#call = call
    call.on('readable', () => this.#wake())
    for (const event of ['end', 'close'] as const) {
      call.on(event, () => {
        this.#ended = true
        this.#wake()
      })
    }
  }

  /** The next message; undefined after the last. Rejects with the signal's reason. */
  async next(signal: AbortSignal): Promise<Buffer | undefined> {
    for (;;) {
      signal.throwIfAborted()
      const message = this.#call.read() as Buffer | null
      if (message !== null) return message
      if (this.#ended) return undefined
      await this.#woken(signal)
    }
  }

  #woken(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        signal.removeEventListener('abort', done)
        this.#wake = () => undefined
        resolve()
      }
      this.#wake = done
      signal.addEventListener('abort', done, { once: true })
    })
  }
}

/** Replies that a member may leave unread before its stream is ended. */
const MAX_UNREAD_REPLIES = 10_000
/** A peer that takes nothing of what was written for it for this long is not waited for. */
const STALLED_MS = 60_000
/** And so long for the status that its stream ends with. */
const STATUS_MS = 5000
/** Node's timers cannot wait longer. */
const MAX_TIMER_MS = 0x7fffffff

/** A call that ended with a status for the peer other than OK. */
export interface FailedCall {
  readonly method: string
  readonly address: string
  /** Undefined: it has shown no certificate of this clusterset that is valid. */
  readonly peer: Peer | undefined
  /** SHA-256 of the certificate that was shown, hex; undefined: none was. */
  readonly fingerprint: string | undefined
  readonly error: unknown
}

export interface BrokerServiceDeps {
  readonly api: BrokerApi
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: ServerMetrics
  /** Aborted when the server stops. */
  readonly stopping: AbortSignal
  /** Aborted when this peer is to connect anew; undefined: its connection may stay. */
  readonly lifeOf: (peer: string) => AbortSignal | undefined
  /** Takes grpc-js' peer text `address:port`. */
  readonly verdictOf: (peer: string) => PeerValidation
  /** At which a refusal is logged: anybody can cause one, and all are counted. */
  readonly refusalLevel: () => 'info' | 'debug'
  /** Called for each call that is refused, or fails. */
  readonly onFailed: (call: FailedCall) => void
  /** Closes the connection of this peer. */
  readonly drop: (peer: string) => void
}

/** Nothing is wrong: the member may find a place elsewhere. */
class SentAway extends BrokerUnreachableError {
  constructor() {
    super('the broker asks this member to connect anew')
  }
}

type Unary = ServerUnaryCall<Buffer, Buffer>
type Duplex = ServerDuplexStream<Buffer, Buffer>
type Writer = ServerWritableStream<Buffer, Buffer>

export function brokerService(deps: BrokerServiceDeps): UntypedServiceImplementation {
  return {
    join: unary(deps, 'join', async (call) => {
      const request = codec.decodeJoinRequest(call.request)
      const address = peerAddress(call.getPeer())
      if (request.look === true) return codec.encodeJoinLook(await deps.api.lookAtJoin(request, address))
      if (request.withdraw === true) {
        await deps.api.withdrawJoin?.(request, address)
        return new Uint8Array()
      }
      return codec.encodeJoinResponse(await deps.api.join(request, address))
    }),
    renew: unary(deps, 'renew', async (call) => {
      const peer = memberOf(deps, call)
      return codec.encodeRenewResponse(await deps.api.renew(peer, codec.decodeRenewRequest(call.request)))
    }),
    leave: unary(deps, 'leave', async (call) => {
      await deps.api.leave(memberOf(deps, call))
      return new Uint8Array()
    }),
    publish: (call: Duplex): void => {
      void streaming(deps, 'publish', call, (ended) => publish(deps, call, ended))
    },
    watch: (call: Writer): void => {
      void streaming(deps, 'watch', call, (ended) => watch(deps, call, ended))
    },
  }
}

function unary(deps: BrokerServiceDeps, method: string, run: (call: Unary) => Promise<Uint8Array>) {
  return (call: Unary, callback: sendUnaryData<Buffer>): void => {
    const caller = callerOf(deps, call)
    const answer = async (): Promise<Uint8Array> => run(call)
    answer().then(
      (bytes) => {
        deps.metrics.called(method, 'ok')
        callback(null, asBuffer(bytes))
      },
      (error: unknown) => {
        report(deps, method, caller, error)
        callback(errorToStatus(error))
      },
    )
  }
}

/**
 * Runs one stream to its end: by the peer, by an error, by the certificate's expiry, or because the server stops. `run`
 * may end it, too, with a reason. One controller for all reasons: a signal made of several signals looks at each of
 * them whenever it is asked, and a thousand streams ask for each change.
 */
async function streaming(
  deps: BrokerServiceDeps,
  method: string,
  call: Duplex | Writer,
  run: (ended: AbortController) => Promise<void>,
): Promise<void> {
  const caller = callerOf(deps, call)
  const ended = new AbortController()
  call.on('cancelled', () => ended.abort(new Error('the peer has gone')))
  call.on('error', () => ended.abort(new Error('the stream broke')))
  const onStop = (): void => ended.abort(new BrokerUnreachableError('the broker is stopping'))
  if (deps.stopping.aborted) onStop()
  deps.stopping.addEventListener('abort', onStop, { once: true })
  const life = deps.lifeOf(call.getPeer())
  const onMove = (): void => ended.abort(new SentAway())
  if (life?.aborted === true) onMove()
  life?.addEventListener('abort', onMove, { once: true })
  const cancelExpiry = expireWith(deps, call, ended)
  deps.metrics.streams(method, 1)
  try {
    await run(ended)
    ended.signal.throwIfAborted()
    deps.metrics.called(method, 'ok')
    if (!call.cancelled) endWithin(deps, call, () => call.end())
  } catch (error) {
    const cause: unknown = ended.signal.aborted ? ended.signal.reason : error
    if (!call.cancelled) {
      if (cause instanceof SentAway) deps.metrics.called(method, 'ok')
      else report(deps, method, caller, cause)
      // grpc-js' way to end a stream with a status: replies already written go out first.
      endWithin(deps, call, () => call.emit('error', errorToStatus(cause)))
    }
  } finally {
    deps.metrics.streams(method, -1)
    cancelExpiry()
    deps.stopping.removeEventListener('abort', onStop)
    life?.removeEventListener('abort', onMove)
    ended.abort(new Error('the stream has ended'))
  }
}

/**
 * What was written goes out before the status. A peer that takes neither learns of its end by losing the connection.
 */
function endWithin(deps: BrokerServiceDeps, call: Duplex | Writer, end: () => void): void {
  const peer = call.getPeer()
  const cancel = deps.clock.setTimer(STATUS_MS, () => deps.drop(peer))
  // grpc-js says so when the status is out; 'finish' comes while it waits behind what the peer does not read.
  call.once('cancelled', cancel)
  end()
}

function expireWith(deps: BrokerServiceDeps, call: Duplex | Writer, ended: AbortController): () => void {
  const validation = deps.verdictOf(call.getPeer())
  if (validation.t === 'stranger') return () => undefined
  const ms = Math.min(MAX_TIMER_MS, Math.max(0, validation.notAfterMs - deps.clock.now()))
  return deps.clock.setTimer(ms, () => ended.abort(expiredError(validation.notAfterMs)))
}

async function publish(deps: BrokerServiceDeps, call: Duplex, ended: AbortController): Promise<void> {
  const peer = memberOf(deps, call)
  const { signal } = ended
  const reply = (message: PublishReply): void => {
    if (call.destroyed || call.cancelled || signal.aborted) return
    if (call.writableLength > MAX_UNREAD_REPLIES) {
      ended.abort(new RefusedError('StreamStalled', 'replies', 'too many replies were left unread'))
      return
    }
    for (const part of splitNeed(message)) call.write(asBuffer(codec.encodePublishReply(part)))
  }
  const session = deps.api.openPublish(peer, reply, (reason) => ended.abort(reason))
  try {
    await readAll(deps, call, session, signal)
  } finally {
    session.onEnd()
  }
}

/** One message at a time: the next is read when the broker has taken this one and the peer has taken the replies. */
async function readAll(
  deps: BrokerServiceDeps,
  call: Duplex,
  session: PublishSession,
  signal: AbortSignal,
): Promise<void> {
  const messages = new PulledMessages(call)
  for (;;) {
    const bytes = await messages.next(signal)
    if (bytes === undefined) break
    deps.metrics.received(bytes.length)
    // The broker may wait for its disk; the stream may have to end meanwhile.
    await orAborted(session.onMessage(codec.decodePublishMessage(bytes), bytes.length), signal)
    signal.throwIfAborted()
    if (call.writableNeedDrain) await taken(deps, new Promise((resolve) => call.once('drain', resolve)), signal)
  }
  await orAborted(session.onLast(), signal)
}

/** Until the peer has taken what was written for it. Throws RefusedError when that is not so in time. */
async function taken(deps: BrokerServiceDeps, written: Promise<void>, signal: AbortSignal): Promise<void> {
  const stalled = new AbortController()
  const seconds = STALLED_MS / 1000
  const reason = new RefusedError('StreamStalled', 'stream', `stream: nothing of it was read for ${seconds} s`)
  const cancel = deps.clock.setTimer(STALLED_MS, () => stalled.abort(reason))
  try {
    await orAborted(written, AbortSignal.any([signal, stalled.signal]))
  } finally {
    cancel()
  }
}

async function watch(deps: BrokerServiceDeps, call: Writer, ended: AbortController): Promise<void> {
  const peer = memberOf(deps, call)
  const request = codec.decodeWatchRequest(call.request)
  const { signal } = ended
  let revision = request.resume?.revision ?? 0
  const output = new WatchOutput(call)
  // Who takes nothing is not asked for its next message, and would not learn that it is no member any more.
  for await (const message of deps.api.watch(peer, request, signal, (reason) => ended.abort(reason))) {
    // A new snapshot starts over: the numbers before it mean nothing any more.
    if (message.t === 'reset' && !message.resumed) revision = 0
    // What one message holds is one object for all streams, and framed once for all.
    for (const part of fits(message) ? [message] : splitBatch(message, revision)) {
      signal.throwIfAborted()
      const frame = framed(part)
      deps.metrics.sent(frame.length)
      if (output.isFull) await taken(deps, output.room(), signal)
      output.write(frame)
    }
    if (message.t === 'batch') revision = message.revision
  }
}

function memberOf(deps: BrokerServiceDeps, call: Unary | Duplex | Writer): Peer {
  const peer = call.getPeer()
  const known = peerOf(requireMember(deps.verdictOf(peer), deps.clock.now()), peer)
  const process = markHashOf(call.metadata.get(PROCESS_HEADER))
  return process === undefined ? known : { ...known, process }
}

/** Who calls, as it was when the call began: of a connection that was closed meanwhile nobody knows it any more. */
interface Caller {
  readonly peer: string
  readonly found: PeerValidation
}

function callerOf(deps: BrokerServiceDeps, call: Unary | Duplex | Writer): Caller {
  const peer = call.getPeer()
  return { peer, found: deps.verdictOf(peer) }
}

function report(deps: BrokerServiceDeps, method: string, { peer, found }: Caller, error: unknown): void {
  const { code, details } = errorToStatus(error)
  deps.metrics.called(method, isForPeer(error) ? 'refused' : 'failed')
  if (isForPeer(error)) {
    const fields = { method, peer, code, ...reasonField(error), why: details }
    deps.logger[deps.refusalLevel()]('call refused', fields)
  } else {
    const why = error instanceof Error ? error.stack : String(error)
    deps.logger.error('call failed', { reason: reasonOf(error) ?? 'InternalError', method, peer, why })
  }
  const member = found.t === 'member' ? peerOf(found, peer) : undefined
  deps.onFailed({ method, address: peerAddress(peer), peer: member, fingerprint: found.fingerprint, error })
}
