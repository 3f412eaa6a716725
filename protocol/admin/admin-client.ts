/** The admin service of a broker for its operators: BrokerAdmin over gRPC. */
import { Client, type ClientUnaryCall, Metadata, credentials, status } from '@grpc/grpc-js'
import { UserError, errorOf } from '../../runtime/runtime.ts'
import { BACKUP_PART, type BackupPart, type BrokerAdmin, type Operator, type StagedRestore } from './admin-api.ts'
import { shortSocketPath } from './admin-socket.ts'
import {
  ADMIN_SERVICE,
  type AdminFailure,
  CLUSTERSET_HEADER,
  MAX_ADMIN_RESPONSE,
  OPERATOR_HEADER,
  REQUEST_HEADER,
  UNARY_METHODS,
  type UnaryMethod,
  adminError,
  decodeBackupPart,
  fromJson,
  operatorHeader,
  toJson,
} from './admin-wire.ts'

export interface AdminClientInit {
  /** The path of the Unix socket. */
  readonly socket: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
  readonly operator: Operator
  readonly signal: AbortSignal
}

/** Nothing listens on the socket, or what listened is gone: the call was not answered. */
export class AdminUnreachableError extends UserError {
  constructor(message: string) {
    super(message, { hint: 'if it was a change, look whether it was made before you repeat it' })
    this.name = 'AdminUnreachableError'
  }
}

const same = (bytes: Buffer): Buffer => bytes

/**
 * Calls `work` with the admin service behind the socket. Each operation throws RefusedError or UserError as the broker
 * threw it, AdminUnreachableError if the broker does not answer, and the signal's reason.
 */
export async function withAdminClient<T>(init: AdminClientInit, work: (admin: BrokerAdmin) => Promise<T>): Promise<T> {
  const short = shortSocketPath(init.socket)
  const client = new Client(`unix:${short.path}`, credentials.createInsecure(), {
    'grpc.max_receive_message_length': MAX_ADMIN_RESPONSE,
    'grpc.default_authority': 'localhost',
    'grpc.enable_retries': 0,
  })
  try {
    return await work(adminOver(client, init))
  } finally {
    client.close()
    short.close()
  }
}

function adminOver(client: Client, init: AdminClientInit): BrokerAdmin {
  const unary =
    (method: UnaryMethod) =>
    (request: object = {}): Promise<unknown> =>
      call(init.signal, (done) =>
        client.makeUnaryRequest(ADMIN_SERVICE[method].path, same, same, toJson(request), metadataOf(init), done),
      )
  return {
    ...(Object.fromEntries(UNARY_METHODS.map((method) => [method, unary(method)])) as unknown as Pick<
      BrokerAdmin,
      UnaryMethod
    >),
    backup: (request, take) => backup(client, request, { ...init, take }),
    stageRestore: (request, parts) => stageRestore(client, request, parts, init),
  }
}

function metadataOf({ clusterset, operator }: AdminClientInit): Metadata {
  const metadata = new Metadata()
  if (clusterset !== undefined) metadata.set(CLUSTERSET_HEADER, clusterset)
  metadata.set(OPERATOR_HEADER, operatorHeader(operator))
  return metadata
}

type Done = (error: AdminFailure | null, response?: Buffer) => void

/** Begins a call with one response, and cancels it with the signal. */
function call(signal: AbortSignal, begin: (done: Done) => Pick<ClientUnaryCall, 'cancel'>): Promise<unknown> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted()
    // grpc-js loses a cancellation in the iteration of the event loop in which the call began.
    const onAbort = (): void => void setImmediate(() => begun.cancel())
    const begun = begin((error, response) => {
      signal.removeEventListener('abort', onAbort)
      if (error === null && response !== undefined) resolve(fromJson(response))
      else if (signal.aborted) reject(errorOf(signal.reason))
      else reject(errorOfCall(error))
    })
    signal.addEventListener('abort', onAbort, { once: true })
  })
}

function errorOfCall(failure: AdminFailure | null): Error {
  if (failure === null) return new AdminUnreachableError('the broker did not answer')
  if (failure.code === status.UNAVAILABLE) return new AdminUnreachableError(failure.details)
  // The broker never answers so; it ends its calls when it stops.
  return failure.code === status.CANCELLED
    ? new AdminUnreachableError('the broker has ended the call; it may be stopping')
    : adminError(failure)
}

/** Whether the call failed, rather than the reader of its parts. */
function isFailure(error: unknown): error is AdminFailure & Error {
  return error instanceof Error && 'metadata' in error && 'details' in error
}

async function backup(
  client: Client,
  request: { readonly knownAs: string },
  init: AdminClientInit & { readonly take: (part: BackupPart) => Promise<void> },
): Promise<void> {
  const { signal, take } = init
  signal.throwIfAborted()
  const { path } = ADMIN_SERVICE.backup
  const stream = client.makeServerStreamRequest<Buffer, Buffer>(path, same, same, toJson(request), metadataOf(init))
  const onAbort = (): void => void setImmediate(() => stream.cancel())
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    for await (const part of stream as AsyncIterable<Buffer>) await take(decodeBackupPart(part))
  } catch (error) {
    signal.throwIfAborted()
    throw isFailure(error) ? errorOfCall(error) : error
  } finally {
    signal.removeEventListener('abort', onAbort)
    onAbort()
  }
}

async function stageRestore(
  client: Client,
  request: { readonly force: boolean },
  parts: AsyncIterable<Uint8Array>,
  init: AdminClientInit,
): Promise<StagedRestore> {
  const metadata = metadataOf(init)
  metadata.set(REQUEST_HEADER, toJson(request))
  const { path } = ADMIN_SERVICE.stageRestore
  const ended = new AbortController()
  let unread: Error | undefined
  return (await call(init.signal, (done) => {
    const stream = client.makeClientStreamRequest<Buffer, Buffer>(path, same, same, metadata, (error, response) => {
      ended.abort()
      done(error, response)
    })
    void send(parts, stream, ended.signal).then(
      () => stream.end(),
      (error: unknown) => {
        // The broker refuses what is not whole.
        unread = errorOf(error)
        stream.cancel()
      },
    )
    return stream
  }).catch((error: unknown) => {
    throw unread ?? error
  })) as StagedRestore
}

async function send(
  parts: AsyncIterable<Uint8Array>,
  stream: { write(part: Buffer): boolean; once(event: 'drain', callback: () => void): unknown },
  ended: AbortSignal,
): Promise<void> {
  for await (const bytes of parts) {
    for (let at = 0; at < bytes.length; at += BACKUP_PART) {
      if (ended.aborted) return
      if (stream.write(Buffer.from(bytes.subarray(at, at + BACKUP_PART)))) continue
      await new Promise<void>((resolve) => {
        stream.once('drain', resolve)
        ended.addEventListener('abort', () => resolve(), { once: true })
      })
    }
  }
}
