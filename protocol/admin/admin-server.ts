/**
 * Serves the admin service of a broker: on a Unix socket in its state directory, which only the user of the broker can
 * open, and where asked for on a loopback port, for the port-forward of a pod. Both carry no TLS and no login: who can
 * open the socket can also read the database beside it, and who may forward the port has that right from the API server.
 */
import { rm } from 'node:fs/promises'
import { type Server as NetServer, type Socket, createServer } from 'node:net'
import {
  type Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerReadableStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type UntypedServiceImplementation,
  type sendUnaryData,
} from '@grpc/grpc-js'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError, formatHostPort, messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { RefusedError } from '../protocol.ts'
import type { BrokerAdmin, Operator } from './admin-api.ts'
import { listenOnSocket } from './admin-socket.ts'
import {
  ADMIN_SERVICE,
  CLUSTERSET_HEADER,
  MAX_ADMIN_REQUEST,
  MAX_ADMIN_RESPONSE,
  OPERATOR_HEADER,
  REQUEST_HEADER,
  UNARY_METHODS,
  type UnaryMethod,
  adminFailure,
  encodeBackupPart,
  fromJson,
  readOperator,
  toJson,
} from './admin-wire.ts'

/** What a call says of itself. */
export interface AdminCaller {
  /** Undefined for the broker's own clusterset. */
  readonly clusterset: string | undefined
  readonly operator: Operator
  /** The source address of a call by the port. Absent for one by the socket. */
  readonly address?: string
}

export interface ServeAdminInit {
  /** The operations for one call. May throw, for example RefusedError for an unknown clusterset. */
  readonly adminFor: (caller: AdminCaller) => BrokerAdmin
  /** The path of the Unix socket. A file of a process that ended without removing it is replaced. */
  readonly socket: string
  /** An address of this machine's loopback, for the port-forward of a pod. */
  readonly loopback?: { readonly host: string; readonly port: number } | undefined
  readonly clock: Clock
  readonly logger: Logger
}

export interface AdminServer {
  /** The port of `loopback`. Undefined if there is none. */
  readonly port: number | undefined
  /** Ends all calls and removes the socket. */
  close(): Promise<void>
}

/** Of each way. A command needs one, for a moment. */
const MAX_CONNECTIONS = 64
/** A connection without a call is closed after this time. */
const IDLE_MS = 30_000
/** Backups that are sent or received at once. Each needs as much room on the disk as the state. */
const MAX_TRANSFERS = 4
/** Limit for a caller that takes or sends no part of a backup. */
const STALLED_MS = 60_000

/**
 * Throws UserError if the socket or the port cannot be opened. The caller must hold the lock of the state directory until
 * the server is closed.
 */
export async function serveAdmin(init: ServeAdminInit): Promise<AdminServer> {
  const { socket, loopback } = init
  const transfers: Transfers = { running: 0 }
  await using stack = new AsyncDisposableStack()
  const local = new Way({ ...init, transfers })
  const release = await listenOnSocket(local.server, socket).catch((error: unknown) => notOpened(socket, error))
  stack.defer(() => rm(socket, { force: true }))
  stack.defer(release)
  stack.defer(() => local.close())
  let port: number | undefined
  if (loopback !== undefined) {
    const forwarded = new Way({ ...init, transfers })
    stack.defer(() => forwarded.close())
    port = await listenOnPort(forwarded.server, loopback).catch((error: unknown) =>
      notOpened(formatHostPort(loopback), error),
    )
  }
  const all = stack.move()
  return { port, close: () => all.disposeAsync() }
}

function notOpened(where: string, cause: unknown): never {
  throw new UserError(`the admin service cannot listen on ${where}: ${messageOf(cause)}`, { cause })
}

function listenOnPort(
  server: NetServer,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.off('error', reject)
      const address = server.address()
      resolve(typeof address === 'object' && address !== null ? address.port : port)
    })
  })
}

interface Transfers {
  running: number
}

type WayInit = Pick<ServeAdminInit, 'adminFor' | 'clock' | 'logger'> & { readonly transfers: Transfers }

/** One listener with its connections, whose number is limited. */
class Way {
  readonly server: NetServer
  readonly #grpc: Server
  readonly #sockets = new Set<Socket>()

  constructor(init: WayInit) {
    this.#grpc = new Server({
      'grpc.max_receive_message_length': MAX_ADMIN_REQUEST,
      'grpc.max_send_message_length': MAX_ADMIN_RESPONSE,
      'grpc.max_concurrent_streams': 8,
      'grpc.max_connection_idle_ms': IDLE_MS,
      'grpc.enable_channelz': 0,
    })
    this.#grpc.addService(ADMIN_SERVICE, implementation(init))
    const injector = this.#grpc.createConnectionInjector(ServerCredentials.createInsecure())
    this.server = createServer((socket) => {
      this.#makeRoom()
      this.#sockets.add(socket)
      // An error ends the session; without a listener it would end the process.
      socket.on('error', () => undefined).on('close', () => this.#sockets.delete(socket))
      injector.injectConnection(socket)
    })
  }

  /** The oldest one that has said nothing gives way, and else the oldest one. */
  #makeRoom(): void {
    if (this.#sockets.size < MAX_CONNECTIONS) return
    const all = [...this.#sockets]
    const oldest = all.find((one) => one.bytesRead === 0) ?? all[0]
    if (oldest === undefined) return
    this.#sockets.delete(oldest)
    oldest.destroy()
  }

  async close(): Promise<void> {
    this.#grpc.forceShutdown()
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()))
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }
}

type AnyCall =
  | ServerUnaryCall<Buffer, Buffer>
  | ServerWritableStream<Buffer, Buffer>
  | ServerReadableStream<Buffer, Buffer>
  | ServerDuplexStream<Buffer, Buffer>

function implementation({ adminFor, clock, logger, transfers }: WayInit): UntypedServiceImplementation {
  const of = (call: AnyCall): BrokerAdmin => {
    checkHost(call)
    return adminFor(callerOf(call.metadata, call.getPeer()))
  }
  const failed = (method: string, error: unknown): ReturnType<typeof adminFailure> => {
    logger.info('an admin call failed', { method, why: messageOf(error) })
    return adminFailure(error)
  }
  const unary =
    (method: UnaryMethod) =>
    (call: ServerUnaryCall<Buffer, Buffer>, done: sendUnaryData<Buffer>): void => {
      run(of, method, call).then(
        (response) => done(null, toJson(response)),
        (error: unknown) => done(failed(method, error)),
      )
    }
  return {
    ...Object.fromEntries(UNARY_METHODS.map((method) => [method, unary(method)])),
    backup: (call: ServerWritableStream<Buffer, Buffer>): void => {
      transfer(transfers, () => sendBackup(of, call, clock)).then(
        () => call.end(),
        (error: unknown) => call.emit('error', failed('backup', error)),
      )
    },
    stageRestore: (call: ServerReadableStream<Buffer, Buffer>, done: sendUnaryData<Buffer>): void => {
      transfer(transfers, () => takeRestore(of, call, clock)).then(
        (response) => done(null, toJson(response)),
        (error: unknown) => done(failed('stageRestore', error)),
      )
    },
  }
}

function callerOf(metadata: Metadata, peer: string): AdminCaller {
  const clusterset = metadata.get(CLUSTERSET_HEADER)[0]?.toString()
  const address = /^\[?([0-9a-f.:]+)\]?:\d+$/i.exec(peer)?.[1]
  const operator = readOperator(metadata.get(OPERATOR_HEADER)[0])
  return { clusterset, operator, ...(address === undefined ? {} : { address }) }
}

/**
 * A page in a browser may reach the port under a name of its own that leads to the loopback (DNS rebinding). Its calls
 * name that host, or say which page they are from. Throws RefusedError.
 */
function checkHost(call: AnyCall): void {
  const isLocal = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/.test(call.getHost())
  if (isLocal && call.metadata.get('origin').length === 0) return
  throw new RefusedError(
    'InvalidValue',
    'authority',
    'authority: expected localhost; requests of web pages are refused',
  )
}

async function transfer<T>(transfers: Transfers, work: () => Promise<T>): Promise<T> {
  if (transfers.running >= MAX_TRANSFERS) {
    const hint = 'wait until they have ended'
    throw new UserError(`${MAX_TRANSFERS} backups are already being sent or received`, { hint })
  }
  transfers.running += 1
  try {
    return await work()
  } finally {
    transfers.running -= 1
  }
}

const GONE = 'the caller has ended the call'
const STALLED = `the caller has taken or sent nothing for ${STALLED_MS / 1000} s`

type Of = (call: AnyCall) => BrokerAdmin

async function run(of: Of, method: UnaryMethod, call: ServerUnaryCall<Buffer, Buffer>): Promise<unknown> {
  // Loaded with the first call: brokers that no operator calls need no schemas.
  const { checkAdminRequest } = await import('./admin-requests.ts')
  const admin = of(call)
  const operation = admin[method].bind(admin) as (init: object) => Promise<unknown>
  return operation(checkAdminRequest(method, readJson(call.request)))
}

async function sendBackup(of: Of, call: ServerWritableStream<Buffer, Buffer>, clock: Clock): Promise<void> {
  const { checkAdminRequest } = await import('./admin-requests.ts')
  const request = checkAdminRequest('backup', readJson(call.request))
  let onMoved: () => void = () => undefined
  call.on('drain', () => onMoved()).on('cancelled', () => onMoved())
  await of(call).backup(request, async (part) => {
    if (call.cancelled) throw new Error(GONE)
    if (call.write(encodeBackupPart(part))) return
    await inTime(clock, new Promise<void>((resolve) => (onMoved = resolve)))
  })
}

/** Throws if it is not done in STALLED_MS. */
function inTime<T>(clock: Clock, done: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = clock.setTimer(STALLED_MS, () => reject(new Error(STALLED)))
    done.then(resolve, reject).finally(cancel)
  })
}

async function takeRestore(of: Of, call: ServerReadableStream<Buffer, Buffer>, clock: Clock): Promise<unknown> {
  const { checkAdminRequest } = await import('./admin-requests.ts')
  const [header] = call.metadata.get(REQUEST_HEADER)
  const request = checkAdminRequest('stageRestore', readJson(header instanceof Buffer ? header : Buffer.alloc(0)))
  return of(call).stageRestore(request, partsOf(call, clock))
}

/** Throws if the caller ends the call before its end, or sends nothing for too long. */
async function* partsOf(call: ServerReadableStream<Buffer, Buffer>, clock: Clock): AsyncGenerator<Buffer> {
  const gone = new Promise<never>((_resolve, reject) => call.once('cancelled', () => reject(new Error(GONE))))
  gone.catch(() => undefined)
  const parts = (call as AsyncIterable<Buffer>)[Symbol.asyncIterator]()
  for (;;) {
    const next = await inTime(clock, Promise.race([parts.next(), gone]))
    if (call.cancelled) throw new Error(GONE)
    if (next.done === true) return
    yield next.value
  }
}

/** Undefined if it is no JSON; the check of the request refuses that. */
function readJson(bytes: Buffer): unknown {
  try {
    return fromJson(bytes)
  } catch {
    return undefined
  }
}
