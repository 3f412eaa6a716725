/**
 * Runs one check from the network of this machine: a TCP connection, or a GET request. It sends nothing else, reads no
 * body, follows no redirect and asks no DNS server.
 */
import type { IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { BackendCheck } from '../../model/services/services.ts'
import { formatDuration, formatHostPort } from '../../runtime/runtime.ts'
import { request, requestOverTls } from '../../runtime/http/http.ts'
import type { CheckOutcome, CheckTarget } from './plan-checks.ts'

/** Undefined: this machine could not run the check, which says nothing about the backend. */
export type CheckResult = CheckOutcome | undefined

/** Runs one check. Ends within its timeout, or with the signal. Never rejects. */
export type CheckBackend = (target: CheckTarget, signal: AbortSignal) => Promise<CheckResult>

/** Headers of a health page are short. */
const MAX_HEADER_BYTES = 16_384

/** What the system's errors mean. The rest is named by its code, never by a text from the backend. */
const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to the network',
  ETIMEDOUT: 'no answer',
  EPROTO: 'no TLS',
  HPE_HEADER_OVERFLOW: 'its HTTP header is too long',
}
/** This machine lacks descriptors, memory, ports or the right to connect. */
const OUR_OWN = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS', 'EADDRNOTAVAIL', 'EPERM', 'EACCES'])

/** Checks with the sockets of this machine. The clock ends a check after its timeout. */
export function backendChecker(clock: Clock): CheckBackend {
  return (target, signal) => runCheck(target, clock, signal)
}

function runCheck(target: CheckTarget, clock: Clock, signal: AbortSignal): Promise<CheckResult> {
  const { check } = target
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve(undefined)
      return
    }
    const open = check.type === 'tcp' ? openTcp(target) : openHttp(target, check)
    let ended = false
    const end = (result: CheckResult): void => {
      if (ended) return
      ended = true
      cancel()
      signal.removeEventListener('abort', stopped)
      open.destroy()
      resolve(result)
    }
    // If this process was blocked, the answer may have arrived but not been read yet: Node runs timers first.
    const late = (): void => {
      setImmediate(() => end({ passed: false, message: `no answer within ${formatDuration(check.timeoutMs)}` }))
    }
    const stopped = (): void => end(undefined)
    const cancel = clock.setTimer(check.timeoutMs, late)
    signal.addEventListener('abort', stopped, { once: true })
    void open.done.then(end)
  })
}

interface OpenCheck {
  readonly done: Promise<CheckResult>
  destroy(): void
}

function openTcp({ address, port }: CheckTarget): OpenCheck {
  const socket = connect({ host: address, port })
  const done = new Promise<CheckResult>((resolve) => {
    socket.on('connect', () => resolve({ passed: true }))
    socket.on('error', (error) => resolve(failure(error)))
  })
  return { done, destroy: () => void socket.destroy() }
}

/** Like a kubelet, it does not verify the certificate of HTTPS: the backend is named by an address, and gets no secret. */
function openHttp({ address, port }: CheckTarget, { type, path }: BackendCheck & { readonly path: string }): OpenCheck {
  const options = {
    host: address,
    port,
    path,
    method: 'GET',
    agent: false,
    maxHeaderSize: MAX_HEADER_BYTES,
    headers: { Host: formatHostPort({ host: address, port }), 'User-Agent': 'sealane-check', Connection: 'close' },
  }
  const sent = type === 'https' ? requestOverTls({ ...options, rejectUnauthorized: false }) : request(options)
  const done = new Promise<CheckResult>((resolve) => {
    sent.on('response', ({ statusCode = 0 }: IncomingMessage) => {
      const passed = statusCode >= 200 && statusCode < 400
      resolve(passed ? { passed } : { passed, message: `HTTP status ${statusCode}` })
    })
    sent.on('upgrade', () => resolve({ passed: false, message: 'HTTP status 101' }))
    sent.on('error', (error) => resolve(failure(error)))
    sent.end()
  })
  return { done, destroy: () => void sent.destroy() }
}

function failure({ code = 'error' }: NodeJS.ErrnoException): CheckResult {
  if (OUR_OWN.has(code)) return undefined
  return { passed: false, message: WORDS[code] ?? (code.startsWith('HPE_') ? 'no HTTP' : code) }
}
