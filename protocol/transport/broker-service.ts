/**
 * Implements the five gRPC calls on top of BrokerApi. It decodes requests, encodes responses, and turns every failure
 * into a gRPC status instead of throwing into grpc-js.
 */
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
import { type PeerValidation, expiredError, peerAddress, peerOf, requireIssued, requireMember } from './peer-check.ts'
import { asBuffer } from './raw-service.ts'
import type { ServerMetrics } from './server-metrics.ts'
import { errorToStatus, isForPeer } from './status-codes.ts'
import { WatchOutput, framed } from './watch-output.ts'

/**
 * Reads the messages of a call one by one. The async iterator of a stream is not used: it destroys the stream on
 * failure, which loses acknowledgements that were not yet written and the final status.
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

  /** Returns the next message, or undefined after the last one. Rejects with the signal's reason. */
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

/** Unread replies after which the broker ends a member's stream. */
const MAX_UNREAD_REPLIES = 10_000
/** The broker ends a stream if the peer reads nothing that was written to it for this long. */
const STALLED_MS = 60_000
/** The broker closes the connection if the final status of a stream cannot be sent within this time. */
const STATUS_MS = 5000
/** Longest delay of a Node timer. */
const MAX_TIMER_MS = 0x7fffffff

/** A call that ended with a status other than OK. */
export interface FailedCall {
  readonly method: string
  readonly address: string
  /** Undefined if the caller presented no valid certificate of this clusterset. */
  readonly peer: Peer | undefined
  /** SHA-256 of the presented certificate, in hexadecimal. Undefined if there was none. */
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
  /** Signal that aborts when this peer must reconnect. Undefined if its connection may stay. */
  readonly lifeOf: (peer: string) => AbortSignal | undefined
  /** Takes the peer text of grpc-js, `address:port`. */
  readonly verdictOf: (peer: string) => PeerValidation
  /**
   * Log level for the next refusal. Anyone can cause refusals, so not all are logged at `info`; the metrics count all.
   */
  readonly refusalLevel: () => 'info' | 'debug'
  /** Called for each call that is refused or fails. */
  readonly onFailed: (call: FailedCall) => void
  /** Closes the connection of this peer. */
  readonly drop: (peer: string) => void
}

/** Ends a stream without a fault, so that the member connects again, possibly to another replica. */
class SentAway extends BrokerUnreachableError {
  constructor() {
    super('the broker asks this member to reconnect')
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
      const peer = callingPeer(call, requireIssued(deps.verdictOf(call.getPeer()), deps.clock.now()))
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
 * Runs one stream until the peer ends it, an error occurs, the certificate expires, the server stops, or `run` aborts
 * `ended`. One controller serves all these reasons. A combined signal (AbortSignal.any) would check each source on
 * every access, which is too slow with a thousand streams that check on every change.
 */
async function streaming(
  deps: BrokerServiceDeps,
  method: string,
  call: Duplex | Writer,
  run: (ended: AbortController) => Promise<void>,
): Promise<void> {
  const caller = callerOf(deps, call)
  const ended = new AbortController()
  call.on('cancelled', () => ended.abort(new Error('the peer has disconnected')))
  call.on('error', () => ended.abort(new Error('the stream failed')))
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
      // With this event grpc-js ends a stream with a status, after the replies that are already written.
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
 * Ends a stream; written messages are sent before the status. If the peer reads neither in time, the connection is
 * closed.
 */
function endWithin(deps: BrokerServiceDeps, call: Duplex | Writer, end: () => void): void {
  const peer = call.getPeer()
  const cancel = deps.clock.setTimer(STATUS_MS, () => deps.drop(peer))
  // grpc-js emits 'cancelled' when the status has been sent. 'finish' is too early: the status may still be queued.
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
      ended.abort(new RefusedError('StreamStalled', 'replies', 'the peer left too many replies unread'))
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

/**
 * Reads one message at a time: the next one after the broker has handled this one and the peer has read the replies.
 */
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
    // onMessage() may wait for the disk, and the stream may have to end meanwhile.
    await orAborted(session.onMessage(codec.decodePublishMessage(bytes), bytes.length), signal)
    signal.throwIfAborted()
    if (call.writableNeedDrain) await taken(deps, new Promise((resolve) => call.once('drain', resolve)), signal)
  }
  await orAborted(session.onLast(), signal)
}

/** Resolves when the peer has read what was written to it. Throws RefusedError after STALLED_MS. */
async function taken(deps: BrokerServiceDeps, written: Promise<void>, signal: AbortSignal): Promise<void> {
  const stalled = new AbortController()
  const seconds = STALLED_MS / 1000
  const reason = new RefusedError('StreamStalled', 'stream', `stream: the member has read nothing for ${seconds} s`)
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
  // The loop does not request messages for a peer that reads nothing, so only `end` can stop the stream of a peer that
  // is no longer a member.
  for await (const message of deps.api.watch(peer, request, signal, (reason) => ended.abort(reason))) {
    // A new snapshot makes earlier revisions meaningless.
    if (message.t === 'reset' && !message.resumed) revision = 0
    // A message that fits is the same object for all streams, so framed() encodes it only once.
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
  return callingPeer(call, requireMember(deps.verdictOf(call.getPeer()), deps.clock.now()))
}

function callingPeer(call: Unary | Duplex | Writer, member: ReturnType<typeof requireIssued>): Peer {
  const known = peerOf(member, call.getPeer())
  const process = markHashOf(call.metadata.get(PROCESS_HEADER))
  return process === undefined ? known : { ...known, process }
}

/**
 * The caller as it was when the call began. After a connection has closed, its certificate can no longer be looked up.
 */
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
