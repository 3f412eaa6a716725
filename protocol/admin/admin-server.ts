/**
 * Serves the admin service of a broker: on a Unix socket in its state directory, which only the user of the broker can
 * open, and where asked for on a loopback port, for the port-forward of a pod. Both carry no TLS and no login: who can
 * open the socket can also read the database beside it, and who may forward the port has that right from the API server.
 */
import { chmod, rm } from 'node:fs/promises'
import { isIP } from 'node:net'
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
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { BrokerAdmin, Operator } from './admin-api.ts'
import { shortSocketPath } from './admin-socket.ts'
import {
  ADMIN_SERVICE,
  CLUSTERSET_HEADER,
  MAX_ADMIN_REQUEST,
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
}

export interface ServeAdminInit {
  /** The operations for one call. May throw, for example RefusedError for an unknown clusterset. */
  readonly adminFor: (caller: AdminCaller) => BrokerAdmin
  /** The path of the Unix socket. A file of a process that ended without removing it is replaced. */
  readonly socket: string
  /** An address of this machine's loopback, for the port-forward of a pod. */
  readonly loopback?: { readonly host: string; readonly port: number } | undefined
  readonly logger: Logger
}

export interface AdminServer {
  /** The port of `loopback`. Undefined if there is none. */
  readonly port: number | undefined
  /** Ends all calls and removes the socket. */
  close(): Promise<void>
}

/** Throws if the socket or the port cannot be opened. The caller must hold the lock of the state directory. */
export async function serveAdmin({ adminFor, socket, loopback, logger }: ServeAdminInit): Promise<AdminServer> {
  const server = new Server({ 'grpc.max_receive_message_length': MAX_ADMIN_REQUEST })
  server.addService(ADMIN_SERVICE, implementation(adminFor, logger))
  await rm(socket, { force: true })
  const short = shortSocketPath(socket)
  try {
    await bind(server, `unix:${short.path}`)
    await chmod(socket, 0o600)
    const port = loopback === undefined ? undefined : await bind(server, hostPort(loopback))
    return {
      port,
      close: async () => {
        server.forceShutdown()
        short.close()
        await rm(socket, { force: true })
      },
    }
  } catch (error) {
    server.forceShutdown()
    short.close()
    throw error
  }
}

function hostPort({ host, port }: { readonly host: string; readonly port: number }): string {
  return isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`
}

function bind(server: Server, address: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) => {
      if (error === null) resolve(port)
      else reject(error)
    })
  })
}

type AnyCall =
  | ServerUnaryCall<Buffer, Buffer>
  | ServerWritableStream<Buffer, Buffer>
  | ServerReadableStream<Buffer, Buffer>
  | ServerDuplexStream<Buffer, Buffer>

function implementation(adminFor: ServeAdminInit['adminFor'], logger: Logger): UntypedServiceImplementation {
  const of = (call: AnyCall): BrokerAdmin => adminFor(callerOf(call.metadata))
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
      sendBackup(of, call).then(
        () => call.end(),
        (error: unknown) => call.emit('error', failed('backup', error)),
      )
    },
    stageRestore: (call: ServerReadableStream<Buffer, Buffer>, done: sendUnaryData<Buffer>): void => {
      takeRestore(of, call).then(
        (response) => done(null, toJson(response)),
        (error: unknown) => done(failed('stageRestore', error)),
      )
    },
  }
}

function callerOf(metadata: Metadata): AdminCaller {
  const clusterset = metadata.get(CLUSTERSET_HEADER)[0]?.toString()
  return { clusterset, operator: readOperator(metadata.get(OPERATOR_HEADER)[0]) }
}

type Of = (call: AnyCall) => BrokerAdmin

async function run(of: Of, method: UnaryMethod, call: ServerUnaryCall<Buffer, Buffer>): Promise<unknown> {
  // Loaded with the first call: brokers that no operator calls need no schemas.
  const { checkAdminRequest } = await import('./admin-requests.ts')
  const admin = of(call)
  const operation = admin[method].bind(admin) as (init: object) => Promise<unknown>
  return operation(checkAdminRequest(method, readJson(call.request)))
}

async function sendBackup(of: Of, call: ServerWritableStream<Buffer, Buffer>): Promise<void> {
  const { checkAdminRequest } = await import('./admin-requests.ts')
  const request = checkAdminRequest('backup', readJson(call.request))
  await of(call).backup(request, async (part) => {
    if (call.cancelled) throw new Error('the caller has ended the call')
    if (call.write(encodeBackupPart(part))) return
    await new Promise<void>((resolve) => {
      call.once('drain', resolve)
      call.once('cancelled', resolve)
    })
  })
}

async function takeRestore(of: Of, call: ServerReadableStream<Buffer, Buffer>): Promise<unknown> {
  const { checkAdminRequest } = await import('./admin-requests.ts')
  const [header] = call.metadata.get(REQUEST_HEADER)
  const request = checkAdminRequest('stageRestore', readJson(header instanceof Buffer ? header : Buffer.alloc(0)))
  return of(call).stageRestore(request, call as AsyncIterable<Buffer>)
}

/** Undefined if it is no JSON; the check of the request refuses that. */
function readJson(bytes: Buffer): unknown {
  try {
    return fromJson(bytes)
  } catch {
    return undefined
  }
}
