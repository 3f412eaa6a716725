/**
 * Performs a TLS handshake with a broker without sending data. It finds the exact cause of a failed connection, which
 * grpc-js does not report, and fetches the CA certificate that a join token pins.
 */
import type { X509Certificate } from 'node:crypto'
import { type TLSSocket, connect } from 'node:tls'
import { type Socket, isIP } from 'node:net'
import type { Clock } from '../../reconcile/reconcile.ts'
import { ProxyError, openTunnel, proxyChoice } from '../../runtime/proxy/proxy.ts'
import { errorOf } from '../../runtime/runtime.ts'
import {
  type BrokerAddress,
  BrokerBusyError,
  BrokerUnreachableError,
  CertificateError,
  formatBrokerAddress,
} from '../protocol.ts'
import {
  type CertificateFacts,
  SERVER_NAME,
  certificateToPem,
  checkBrokerName,
  fingerprint,
  readCertificate,
  serverNameOf,
} from '../identity/identity.ts'
import { comeBackMs } from './handshake-rate-limiter.ts'

export interface ProbeInit {
  readonly address: BrokerAddress
  /** Trusted CA certificates in DER. Empty if none is trusted yet. */
  readonly ca: readonly Uint8Array[]
  /** The expected clusterset. An error names it if the broker belongs to another one. */
  readonly clusterset: string
  readonly clock: Clock
  readonly timeoutMs: number
  /** Default: that of this process. It decides whether a proxy leads to the broker. */
  readonly env?: Readonly<Record<string, string | undefined>>
}

/** Resolves if the broker's certificate is valid. Throws BrokerUnreachableError or CertificateError. */
export async function probeServer(init: ProbeInit, signal: AbortSignal): Promise<void> {
  const [ca] = init.ca
  const authority = ca === undefined ? undefined : fingerprint(ca)
  await handshake({ ...init, authority }, signal, (socket) => validateServer(socket, init))
}

/**
 * Returns the CA certificate (DER) in the broker's chain that has one of the fingerprints. Throws as probeServer()
 * does.
 */
export function fetchPinnedCa(init: ProbeInit, pins: readonly string[], signal: AbortSignal): Promise<Uint8Array> {
  return handshake({ ...init, authority: pins[0] }, signal, (socket) => {
    const chain = peerChain(socket)
    const ca = chain.find((der) => pins.includes(fingerprint(der)))
    if (ca === undefined) throw wrongPin(init, chain[0])
    return ca
  })
}

/** Throws CertificateError if the broker's certificate is not valid. */
function validateServer(socket: TLSSocket, init: ProbeInit): void {
  const where = formatBrokerAddress(init.address)
  const der = socket.getPeerX509Certificate()?.raw
  const facts = der === undefined ? undefined : readOrUndefined(der)
  if (der === undefined || facts === undefined) {
    throw new CertificateError('wrongIdentity', `${where} sent no readable certificate`)
  }
  if (facts.clusterset !== undefined && facts.clusterset !== init.clusterset) throw otherClusterset(init, facts)
  if (!socket.authorized) throw untrusted(where, String(socket.authorizationError), facts, init.clock.now())
  if (checkBrokerName(socket.getPeerCertificate()) !== undefined) {
    throw new CertificateError(
      'wrongIdentity',
      `the certificate of ${where} is not for ${SERVER_NAME}: the server is not a broker`,
    )
  }
}

function untrusted(where: string, code: string, facts: CertificateFacts, nowMs: number): CertificateError {
  if (code.includes('CERT_HAS_EXPIRED')) {
    const at = new Date(facts.notAfterMs).toISOString()
    return new CertificateError('expired', `the certificate of the broker at ${where} expired at ${at}`)
  }
  if (code.includes('CERT_NOT_YET_VALID')) {
    const from = new Date(facts.notBeforeMs).toISOString()
    return new CertificateError(
      'notYetValid',
      `the certificate of the broker at ${where} is valid from ${from}, but the clock of this machine says ${new Date(nowMs).toISOString()}: check the clocks`,
    )
  }
  return new CertificateError(
    'untrusted',
    `the certificate of the broker at ${where} is not from the CA of this clusterset (${code})`,
  )
}

function otherClusterset(init: ProbeInit, facts: CertificateFacts): CertificateError {
  const where = formatBrokerAddress(init.address)
  return new CertificateError(
    'otherClusterset',
    `the broker at ${where} belongs to clusterset "${facts.clusterset ?? ''}", expected "${init.clusterset}"`,
  )
}

function wrongPin(init: ProbeInit, leaf: Uint8Array | undefined): CertificateError {
  const facts = leaf === undefined ? undefined : readOrUndefined(leaf)
  if (facts?.clusterset !== undefined && facts.clusterset !== init.clusterset) return otherClusterset(init, facts)
  const where = formatBrokerAddress(init.address)
  return new CertificateError(
    'untrusted',
    `the broker at ${where} does not have the CA that the join token names: the token is from another broker, or something intercepts the connection`,
  )
}

/** Returns every certificate that the server sent, leaf first. */
function peerChain(socket: TLSSocket): Uint8Array[] {
  const chain: Uint8Array[] = []
  let at: X509Certificate | undefined = socket.getPeerX509Certificate()
  while (at !== undefined && chain.length < 8) {
    chain.push(new Uint8Array(at.raw))
    at = at.issuerCertificate
  }
  return chain
}

interface HandshakeInit extends ProbeInit {
  /** Fingerprint of the authority whose server name is sent to the broker. */
  readonly authority: string | undefined
}

/** Undefined if no proxy leads to the broker. Throws BrokerUnreachableError, or the signal's reason. */
async function tunnelTo(init: ProbeInit, signal: AbortSignal): Promise<Socket | undefined> {
  const { address: to, clock, timeoutMs, env = process.env } = init
  const proxy = proxyChoice(env)(to)
  if (proxy === undefined) return undefined
  try {
    return await openTunnel({ clock, proxy, to, timeoutMs }, signal)
  } catch (error) {
    if (!(error instanceof ProxyError)) throw error
    const text = `broker at ${formatBrokerAddress(to)}: ${error.message}`
    throw new BrokerUnreachableError(text, { cause: error, reason: error.reason })
  }
}

async function handshake<T>(init: HandshakeInit, signal: AbortSignal, use: (socket: TLSSocket) => T): Promise<T> {
  const { host, port } = init.address
  const where = formatBrokerAddress(init.address)
  signal.throwIfAborted()
  const began = init.clock.monotonic()
  const tunnel = await tunnelTo(init, signal)
  // The way through a proxy is part of the same time.
  const leftMs = Math.max(1, init.timeoutMs - (init.clock.monotonic() - began))
  return new Promise<T>((resolve, reject) => {
    signal.throwIfAborted()
    // The handshake accepts every certificate, and `use` then checks it, so that an error can state what is wrong. No
    // data is ever sent on this connection.
    const socket = connect({
      ...(tunnel === undefined ? {} : { socket: tunnel }),
      host,
      port,
      servername: serverNameOf(init.authority),
      checkServerIdentity: (_name, shown) => checkBrokerName(shown),
      ALPNProtocols: ['h2'],
      rejectUnauthorized: false,
      ...(init.ca.length > 0 ? { ca: init.ca.map(certificateToPem) } : {}),
    })
    const finish = (settle: () => void): void => {
      cancelTimer()
      signal.removeEventListener('abort', onAbort)
      socket.destroy()
      settle()
    }
    const onAbort = (): void => finish(() => reject(signal.reason as Error))
    // A socket that the proxy has connected emits no `connect`.
    let isConnected = tunnel !== undefined
    socket.once('connect', () => (isConnected = true))
    const cancelTimer = init.clock.setTimer(leftMs, () => {
      const reason = isConnected ? ({ reason: 'BrokerLate', isConnected } as const) : {}
      const text = `broker at ${where}: no answer within ${init.timeoutMs} ms`
      finish(() => reject(new BrokerUnreachableError(text, reason)))
    })
    signal.addEventListener('abort', onAbort, { once: true })
    socket.on('error', (error: NodeJS.ErrnoException) => {
      finish(() => reject(unreachable(where, { host, isConnected }, error)))
    })
    socket.on('secureConnect', () => {
      try {
        // `use` runs before the socket is destroyed, because a destroyed socket no longer has the certificate.
        const result = use(socket)
        finish(() => resolve(result))
      } catch (error) {
        finish(() => reject(errorOf(error)))
      }
    })
  })
}

function unreachable(
  where: string,
  { host, isConnected }: { readonly host: string; readonly isConnected: boolean },
  error: NodeJS.ErrnoException,
): BrokerUnreachableError {
  const reasons: Readonly<Record<string, string>> = {
    ECONNREFUSED: 'connection refused: nothing listens there',
    ECONNRESET: 'the connection was closed at once',
    EHOSTUNREACH: 'no route to that host',
    ENETUNREACH: 'no route to that network',
    ETIMEDOUT: 'no answer',
    ENOTFOUND: 'no such host name',
    EAI_AGAIN: 'the lookup of the host name failed',
  }
  const busyMs = comeBackMs(error.message)
  if (busyMs !== undefined) return new BrokerBusyError(where, busyMs)
  const reason = reasons[error.code ?? ''] ?? (isIP(host) === 0 ? error.message : `TLS failed: ${error.message}`)
  return new BrokerUnreachableError(`broker at ${where}: ${reason}`, { cause: error, isConnected })
}

function readOrUndefined(der: Uint8Array): CertificateFacts | undefined {
  try {
    return readCertificate(der)
  } catch {
    return undefined
  }
}
