/**
 * A thin client of etcd's API v3: one connection at a time to one of several members, the next one when it fails. What
 * only reads is asked of each of them once; of a write whose answer is lost the caller hears that, and nothing is sent
 * twice.
 */
import { X509Certificate, createPrivateKey } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { Metadata } from '@grpc/grpc-js'
import { type Clock, orAborted } from '../../../../reconcile/reconcile.ts'
import { type HostPort, formatHostPort, messageOf } from '../../../../runtime/runtime.ts'
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
  /** Undefined: the client certificate says who asks, or nobody has to. */
  readonly login?: EtcdLogin | undefined
}

export interface EtcdClientInit {
  /** At least one. */
  readonly endpoints: readonly HostPort[]
  /** Looked at for each connection, and for each login. */
  readonly credentials: EtcdCredentials
  readonly clock: Clock
  readonly logger: Logger
  readonly limits?: Partial<EtcdLimits> | undefined
}

interface CallInit {
  /** In words: "write of 3 rows". */
  readonly action: string
  /** Asking again does no harm. */
  readonly repeatable: boolean
  readonly signal: AbortSignal
  /** False: the call itself is the one that logs in, or needs no login. */
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

  /** host:port of all, as messages name them. */
  get endpoints(): string {
    return this.#init.endpoints.map(formatHostPort).join(',')
  }

  /** The member that is asked now, or is asked next. */
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

  /** Throws EtcdError; of the failure `unknown` nobody knows yet whether it was done. */
  txn(request: TxnRequest, init: Omit<CallInit, 'repeatable'>): Promise<TxnResponse> {
    return this.#call(KVService.txn, request, { ...init, repeatable: false })
  }

  /** For keys that only their writer reads: to write them twice does no harm. */
  async put(key: Buffer, value: Buffer, init: Omit<CallInit, 'repeatable'>, lease = 0): Promise<void> {
    await this.#call(KVService.put, { key, value, lease }, { ...init, repeatable: true })
  }

  /** The id is chosen by the caller: granted twice it is the same lease. */
  async grantLease(id: number, ttlSeconds: number, signal: AbortSignal): Promise<void> {
    const init: CallInit = { action: 'grant of a lease', repeatable: false, signal }
    await this.#call(LeaseService.leaseGrant, { id, ttl: ttlSeconds }, init)
  }

  async revokeLease(id: number, signal: AbortSignal): Promise<void> {
    await this.#call(LeaseService.leaseRevoke, { id }, { action: 'end of a lease', repeatable: true, signal })
  }

  /** Gives the seconds that it has left; 0: it is over. */
  async keepLease(id: number, signal: AbortSignal): Promise<number> {
    for await (const { ttl } of this.#stream(LeaseService.leaseKeepAlive, { id }, 'renewal of a lease', signal))
      return ttl
    throw new EtcdError('unreachable', `etcd at ${this.endpoint}: renewal of a lease: no answer`)
  }

  /**
   * What happens to the keys of a range from a revision on. Throws EtcdError (compacted) when that is forgotten. Ends
   * by the signal, with its reason.
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

  /** Gives the connection up: the next call asks the next member. For who waits for what does not come. */
  turnAway(): void {
    if (this.#connection !== undefined) this.#next(this.#connection)
  }

  close(): void {
    this.#closed.abort(new Error('the connection to etcd is closed'))
    this.#connection?.close()
    this.#connection = undefined
  }

  /** Each member once, while that does no harm. A login that has run out is renewed once. */
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
        // With the next connection it may show something else.
        if (error.failure === 'noLogin') this.#next(connection)
        if (!isLost(error)) throw error
        this.#next(connection)
        failures.push(error)
        if (error.failure === 'unknown' && !repeatable) throw error
        if (failures.length >= this.#init.endpoints.length) throw ofAll(failures)
        this.#init.logger.debug('next member of etcd', { why: error.message })
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

  /** One login at a time, of all calls. */
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
      // A login may be repeated: nothing is unknown about it.
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

  /** Only once, when several calls fail with the same connection. */
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

/** A member that knows no leader answers so at once, where it would otherwise let the caller wait. */
function metadataOf(token: string | undefined): Metadata {
  const metadata = new Metadata()
  metadata.set('hasleader', 'true')
  if (token !== undefined) metadata.set('token', token)
  return metadata
}

function isLost({ failure }: EtcdError): boolean {
  return failure === 'unreachable' || failure === 'unknown'
}

/** What each of them said, once. */
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

// What a broker shows an etcd, in files that somebody else may renew while it runs: a certificate of 90 days ends long
// before a broker does. They are read anew for each connection; what cannot be used leaves what was read before.

export interface CredentialPaths {
  readonly ca?: string | undefined
  /** Both, or none. */
  readonly certificate?: string | undefined
  readonly key?: string | undefined
  readonly password?: string | undefined
}

/** One that cannot be read, or used. */
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

  /** As the files are now. */
  get tls(): EtcdTls {
    return this.#now().tls
  }

  get login(): EtcdLogin | undefined {
    const user = this.#user
    const password = user === undefined ? undefined : this.#now().password
    return user === undefined || password === undefined ? undefined : { user, password }
  }

  /** Half of a new pair may be there: the other half comes with the next connection. */
  #now(): Given {
    try {
      this.#last = read(this.#paths)
    } catch {
      // As above.
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
