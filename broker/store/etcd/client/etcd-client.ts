/**
 * A thin client of etcd's API v3 with one connection at a time to one of several members. If a connection fails, the
 * client moves to the next member. It tries a read once at each member. If the answer to a write is lost, it reports
 * that to the caller and does not send the write again.
 */
import { X509Certificate, createPrivateKey } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { Metadata } from '@grpc/grpc-js'
import { type Clock, orAborted } from '../../../../reconcile/reconcile.ts'
import { type HostPort, checkReadable, formatHostPort, messageOf } from '../../../../runtime/runtime.ts'
import type { Logger } from '../../../../runtime/logging/logging.ts'
import {
  ETCD_LIMITS,
  EtcdConnection,
  EtcdError,
  type EtcdLimits,
  type EtcdTls,
  type Method,
} from './etcd-connection.ts'
import {
  AuthService,
  KVService,
  LeaseService,
  MaintenanceService,
  type RangeRequest,
  type RangeResponse,
  type StatusResponse,
  type TxnRequest,
  type TxnResponse,
  type WatchCreateRequest,
  type WatchResponse,
  WatchService,
} from './gen/etcd.ts'

export interface EtcdLogin {
  readonly user: string
  readonly password: string
}

export interface EtcdCredentials {
  readonly tls: EtcdTls
  /** Undefined if the client certificate identifies the broker, or if etcd requires no login. */
  readonly login?: EtcdLogin | undefined
}

export interface EtcdClientInit {
  /** At least one endpoint. */
  readonly endpoints: readonly HostPort[]
  /** Read for each connection and each login. */
  readonly credentials: EtcdCredentials
  readonly clock: Clock
  readonly logger: Logger
  readonly limits?: Partial<EtcdLimits> | undefined
}

interface CallInit {
  /** The action in words: "write of 3 rows". */
  readonly action: string
  /** The call may be sent again without harm. */
  readonly repeatable: boolean
  readonly signal: AbortSignal
  /** False: the call is the login itself, or needs none. */
  readonly login?: false
}

export class EtcdClient {
  readonly #init: EtcdClientInit
  readonly #limits: EtcdLimits
  readonly #closed = new AbortController()
  #at: number
  #connection: EtcdConnection | undefined
  #token: Promise<string> | undefined

  constructor(init: EtcdClientInit) {
    this.#init = init
    this.#limits = { ...ETCD_LIMITS, ...init.limits }
    // Replicas that start together spread over the members.
    this.#at = Math.floor(init.clock.random() * init.endpoints.length)
  }

  /** host:port of all members, as messages name them. */
  get endpoints(): string {
    return this.#init.endpoints.map(formatHostPort).join(',')
  }

  /** The member that the client uses now, or tries next. */
  get endpoint(): string {
    const { endpoints } = this.#init
    return formatHostPort(endpoints[this.#at % endpoints.length] as HostPort)
  }

  status(signal: AbortSignal): Promise<StatusResponse> {
    const init: CallInit = { action: 'look at its version', repeatable: true, signal, login: false }
    return this.#call(MaintenanceService.status, {}, init)
  }

  range(request: Partial<RangeRequest> & Pick<RangeRequest, 'key'>, init: Omit<CallInit, 'repeatable'>) {
    return this.#call<RangeRequest, RangeResponse>(KVService.range, { ...NO_RANGE, ...request }, { ...init, ...READ })
  }

  /** Throws EtcdError. After the failure `unknown`, the transaction may or may not have run. */
  txn(request: TxnRequest, init: Omit<CallInit, 'repeatable'>): Promise<TxnResponse> {
    return this.#call(KVService.txn, request, { ...init, repeatable: false })
  }

  /** Only for keys that their writer alone writes: the put may be repeated. */
  async put(key: Buffer, value: Buffer, init: Omit<CallInit, 'repeatable'>, lease = 0): Promise<void> {
    await this.#call(KVService.put, { key, value, lease }, { ...init, repeatable: true })
  }

  /** The caller chooses the id, so that a repeated grant gives the same lease. */
  async grantLease(id: number, ttlSeconds: number, signal: AbortSignal): Promise<void> {
    const init: CallInit = { action: 'grant of a lease', repeatable: false, signal }
    await this.#call(LeaseService.leaseGrant, { id, ttl: ttlSeconds }, init)
  }

  async revokeLease(id: number, signal: AbortSignal): Promise<void> {
    await this.#call(LeaseService.leaseRevoke, { id }, { action: 'end of a lease', repeatable: true, signal })
  }

  /** Returns the seconds that the lease has left, or 0 if it has expired. */
  async keepLease(id: number, signal: AbortSignal): Promise<number> {
    for await (const { ttl } of this.#stream(LeaseService.leaseKeepAlive, { id }, 'renewal of a lease', signal))
      return ttl
    throw new EtcdError('unreachable', `etcd at ${this.endpoint}: renewal of a lease: no answer`)
  }

  /**
   * Yields the changes to a range of keys from a revision on. Throws EtcdError (compacted) if that revision is
   * compacted. Ends by the signal, with its reason.
   */
  async *watch(
    { key, rangeEnd, startRevision }: WatchCreateRequest,
    signal: AbortSignal,
  ): AsyncGenerator<WatchResponse, void, undefined> {
    const request = {
      requestUnion: { $case: 'createRequest' as const, value: { key, rangeEnd, startRevision } },
    }
    for await (const answer of this.#stream(WatchService.watch, request, 'watch', signal)) {
      if (answer.compactRevision > 0)
        throw new EtcdError('compacted', `etcd at ${this.endpoint}: watch: revision ${startRevision} is forgotten`)
      if (answer.canceled) throw canceledError(this.endpoint, answer)
      yield answer
    }
    throw new EtcdError('unreachable', `etcd at ${this.endpoint}: watch: it has ended the stream`)
  }

  /**
   * Closes the connection, so that the next call uses the next member. For callers whose member no longer delivers
   * changes.
   */
  turnAway(): void {
    if (this.#connection !== undefined) this.#next(this.#connection)
  }

  close(): void {
    this.#closed.abort(new Error('the connection to etcd is closed'))
    this.#connection?.close()
    this.#connection = undefined
  }

  /** Tries each member once if the call is repeatable. Renews an expired login once. */
  async #call<Q, A>(method: Method<Q, A>, request: Q, init: CallInit): Promise<A> {
    const { action, repeatable } = init
    const signal = AbortSignal.any([init.signal, this.#closed.signal])
    const failures: EtcdError[] = []
    let renewed = false
    for (;;) {
      signal.throwIfAborted()
      const connection = this.#open()
      let token: Promise<string> | undefined
      try {
        await connection.ready(signal)
        token = init.login === false ? undefined : this.#loginToken(connection)
        const metadata = metadataOf(token === undefined ? undefined : await orAborted(token, signal))
        return await connection.unary(method, request, metadata, action, signal)
      } catch (error) {
        if (signal.aborted || !(error instanceof EtcdError)) throw error
        if (error.failure === 'noLogin' && token !== undefined && !renewed) {
          renewed = true
          if (this.#token === token) this.#token = undefined
          continue
        }
        // The next connection may use a renewed certificate.
        if (error.failure === 'noLogin') this.#next(connection)
        if (!isLost(error)) throw error
        this.#next(connection)
        failures.push(error)
        if (error.failure === 'unknown' && !repeatable) throw error
        if (failures.length >= this.#init.endpoints.length) throw ofAll(failures)
        this.#init.logger.debug('trying the next member of etcd', { why: error.message })
      }
    }
  }

  async *#stream<Q, A>(
    method: Method<Q, A>,
    request: Q,
    action: string,
    given: AbortSignal,
  ): AsyncGenerator<A, void, undefined> {
    const signal = AbortSignal.any([given, this.#closed.signal])
    signal.throwIfAborted()
    const connection = this.#open()
    const token = this.#loginToken(connection)
    try {
      await connection.ready(signal)
      const metadata = metadataOf(token === undefined ? undefined : await orAborted(token, signal))
      yield* connection.stream(method, request, metadata, action, signal)
    } catch (error) {
      if (signal.aborted || !(error instanceof EtcdError)) throw error
      if (error.failure === 'noLogin' && this.#token === token) this.#token = undefined
      if (isLost(error) || error.failure === 'noLogin') this.#next(connection)
      throw error
    }
  }

  /** All calls share one login at a time. */
  #loginToken(connection: EtcdConnection): Promise<string> | undefined {
    if (this.#token !== undefined) return this.#token
    const { login } = this.#init.credentials
    if (login === undefined) return undefined
    const token = this.#login(connection, login)
    this.#token = token
    token.catch(() => {
      if (this.#token === token) this.#token = undefined
    })
    return token
  }

  async #login(connection: EtcdConnection, { user, password }: EtcdLogin): Promise<string> {
    const action = `login as ${JSON.stringify(user)}`
    const request = { name: user, password }
    await connection.ready(this.#closed.signal)
    const { token } = await connection
      .unary(AuthService.authenticate, request, metadataOf(undefined), action, this.#closed.signal)
      // A login may be repeated, so its outcome is never `unknown`.
      .catch((error: unknown) => {
        if (error instanceof EtcdError && error.failure === 'unknown')
          throw new EtcdError('unreachable', error.message, error)
        throw error
      })
    return token
  }

  #open(): EtcdConnection {
    this.#closed.signal.throwIfAborted()
    if (this.#connection === undefined) {
      const { endpoints, credentials, clock } = this.#init
      const { tls } = credentials
      const endpoint = endpoints[this.#at % endpoints.length] as HostPort
      this.#connection = new EtcdConnection({ endpoint, tls, clock, limits: this.#limits })
    }
    return this.#connection
  }

  /** Moves on only once if several calls fail on the same connection. */
  #next(connection: EtcdConnection): void {
    connection.close()
    if (this.#connection !== connection) return
    this.#connection = undefined
    this.#at += 1
  }
}

const READ = { repeatable: true } as const
const NO_RANGE: Omit<RangeRequest, 'key'> = {
  rangeEnd: Buffer.alloc(0),
  limit: 0,
  revision: 0,
  keysOnly: false,
  minModRevision: 0,
}

/** With `hasleader`, a member without a leader fails at once. Otherwise the call would wait for a leader. */
function metadataOf(token: string | undefined): Metadata {
  const metadata = new Metadata()
  metadata.set('hasleader', 'true')
  if (token !== undefined) metadata.set('token', token)
  return metadata
}

function isLost({ failure }: EtcdError): boolean {
  return failure === 'unreachable' || failure === 'unknown'
}

/** Joins the messages of all members, each once. */
function ofAll(failures: readonly EtcdError[]): EtcdError {
  const [first] = failures
  if (first === undefined || failures.length === 1) return first ?? new EtcdError('unreachable', 'etcd: no endpoint')
  const text = [...new Set(failures.map(({ message }) => message))].join('; ')
  return new EtcdError('unreachable', text, failures.at(-1))
}

function canceledError(endpoint: string, { cancelReason }: WatchResponse): EtcdError {
  const why = cancelReason === '' ? 'it has ended the watch' : cancelReason
  const failure = /permission denied/.test(why) ? 'denied' : /auth token/.test(why) ? 'noLogin' : 'unreachable'
  return new EtcdError(failure, `etcd at ${endpoint}: watch: ${why}`)
}

// Credentials for etcd, in files that may be renewed while the broker runs: a certificate of 90 days expires long
// before a broker ends. Each connection reads the files again. If they cannot be used, the last valid ones stay in use.

export interface CredentialPaths {
  readonly ca?: string | undefined
  /** Both or neither. */
  readonly certificate?: string | undefined
  readonly key?: string | undefined
  readonly password?: string | undefined
}

/** A credential file that cannot be read or used. */
export class CredentialFileError extends Error {
  readonly file: string
  constructor(file: string, message: string, cause: unknown) {
    super(message, { cause })
    this.name = 'CredentialFileError'
    this.file = file
  }
}

interface Given {
  readonly tls: EtcdTls
  readonly password: string | undefined
}

export class CredentialFiles {
  readonly #paths: CredentialPaths
  readonly #user: string | undefined
  #last: Given

  /** Throws CredentialFileError. */
  constructor(paths: CredentialPaths, user: string | undefined) {
    this.#paths = paths
    this.#user = user
    this.#last = read(paths)
  }

  /** The TLS material as the files are now. */
  get tls(): EtcdTls {
    return this.#now().tls
  }

  get login(): EtcdLogin | undefined {
    const user = this.#user
    const password = user === undefined ? undefined : this.#now().password
    return user === undefined || password === undefined ? undefined : { user, password }
  }

  /** Only half of a new pair may be in place. The next connection reads the other half. */
  #now(): Given {
    try {
      this.#last = read(this.#paths)
    } catch {
      // The last valid credentials stay in use.
    }
    return this.#last
  }
}

function read(paths: CredentialPaths): Given {
  const [ca, certificate, key] = [paths.ca, paths.certificate, paths.key].map(textOf)
  if (certificate !== undefined && key !== undefined) checkPair(paths.certificate ?? '', certificate, key)
  const tls = {
    ...(ca === undefined ? {} : { ca }),
    ...(certificate === undefined ? {} : { certificate }),
    ...(key === undefined ? {} : { key }),
  }
  return { tls, password: textOf(paths.password)?.replace(/\r?\n$/, '') }
}

function textOf(file: string | undefined): string | undefined {
  if (file === undefined) return undefined
  try {
    checkReadable(file)
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new CredentialFileError(file, `${file} cannot be read (${messageOf(error)})`, error)
  }
}

function checkPair(file: string, certificate: string, key: string): void {
  let fits = false
  try {
    fits = new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key))
  } catch (error) {
    throw new CredentialFileError(file, `${file} and its key cannot be used (${messageOf(error)})`, error)
  }
  if (!fits) throw new CredentialFileError(file, `${file}: the key that is given with it is another one`, undefined)
}
