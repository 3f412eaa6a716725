/** Classifies the error answers of an API server, and missing answers. No other file does. */
import { messageOf } from '../../runtime/runtime.ts'
import { ClusterApiError, type ClusterApiErrorCode } from '../kubeapi.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/** The request: `apply`, `ServiceImport shop/web`. */
export interface RequestLine {
  readonly verb: string
  readonly title: string
}

/** The fields of metav1.Status that are used. */
interface Status {
  readonly message?: string
  readonly reason?: string
  readonly details?: {
    readonly kind?: string
    readonly retryAfterSeconds?: number
    readonly causes?: readonly { readonly reason?: string; readonly message?: string }[]
  }
}

/** Our own reasons for a missing answer. */
const OWN_REASONS = [
  'NoAnswer',
  'NoConnection',
  'NoLogin',
  'TooLarge',
  'ExecFailed',
  'ForwardFailed',
] as const satisfies readonly ReasonCode[]

export interface KubeErrorInit {
  readonly code: ClusterApiErrorCode
  /** HTTP status; 0 if there was no answer. */
  readonly status: number
  /** metav1.StatusReason, or one of OWN_REASONS. */
  readonly reason: string
  /** The resource that the server names in its answer: `nodes`. Absent from the answer of a proxy. */
  readonly about?: string | undefined
  readonly retryAfterMs?: number | undefined
  readonly cause?: unknown
}

export class KubeError extends ClusterApiError {
  readonly status: number
  readonly reason: string
  readonly about: string | undefined
  readonly retryAfterMs: number | undefined
  constructor(message: string, init: KubeErrorInit) {
    super(init.code, message, init.cause === undefined ? {} : { cause: init.cause })
    this.name = 'KubeError'
    this.status = init.status
    this.reason = init.reason
    this.about = init.about
    this.retryAfterMs = init.retryAfterMs
  }

  /** Our own reason if there was no valid answer. */
  get ownReason(): ReasonCode | undefined {
    return OWN_REASONS.find((one) => one === this.reason)
  }

  /** Whether a retry may succeed. The same request gets an answer that is too large again. */
  get passing(): boolean {
    if (this.reason === 'TooLarge' || this.code === 'Invalid') return false
    return this.status === 0 || this.status === 429 || this.status >= 500
  }
}

/** Proxies send whole pages; a message is one line. */
const MAX_SAID = 1000

/** Builds the error for an answer without success. `body` is usually a Status, sometimes the text of a proxy. */
export function errorFromAnswer(asked: RequestLine, status: number, body: unknown, retryAfter?: string): KubeError {
  const said = asStatus(body)
  const reason = said.reason ?? (status === 410 ? 'Expired' : '')
  const message = said.message ?? (typeof body === 'string' && body.trim() !== '' ? body.trim() : 'nothing more')
  const seconds = said.details?.retryAfterSeconds ?? Number(retryAfter ?? Number.NaN)
  const mark = reason === '' ? `${status}` : `${status} ${reason}`
  return new KubeError(`${asked.verb} ${asked.title}: the API server says: ${oneLine(message)} (${mark})`, {
    code: codeOf(status, said),
    status,
    reason,
    about: said.details?.kind,
    retryAfterMs: Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : undefined,
  })
}

/** Our side could not obtain credentials. */
export class LoginError extends Error {
  constructor(cause: unknown) {
    super(messageOf(cause), { cause })
    this.name = 'LoginError'
  }
}

/** Builds the error for a missing answer: the connection was refused, broken or not trusted, or the login failed. */
export function errorFromConnection(asked: RequestLine, server: string, error: unknown): KubeError {
  if (error instanceof KubeError) return error
  if (error instanceof LoginError) {
    return new KubeError(
      `${asked.verb} ${asked.title}: authentication at the API server ${server} failed: ${oneLine(error.message)}`,
      { code: 'Unauthorized', status: 401, reason: 'NoLogin', cause: error },
    )
  }
  const message = error instanceof Error ? (error.message === '' ? error.name : error.message) : String(error)
  return new KubeError(
    `${asked.verb} ${asked.title}: the API server at ${server} is unreachable: ${oneLine(message)}`,
    {
      code: 'Unavailable',
      status: 0,
      reason: 'NoConnection',
      cause: error,
    },
  )
}

export function noAnswer(asked: RequestLine, server: string, ms: number): KubeError {
  return new KubeError(
    `${asked.verb} ${asked.title}: the API server at ${server} did not answer within ${ms / 1000} s`,
    {
      code: 'Unavailable',
      status: 0,
      reason: 'NoAnswer',
    },
  )
}

/**
 * Refusals that end by themselves: of new objects while their CustomResourceDefinition is being deleted (403), and by
 * an admission policy whose parameter, an object of such a kind, does not exist yet (422). Only the message identifies
 * them.
 */
const REFUSED_FOR_NOW =
  /create not allowed while custom resource definition is terminating|no params found for policy binding with/

/** Server-side apply refuses fields that the schema of a kind lacks with status 500. */
const NOT_IN_SCHEMA = /: field not declared in schema/

function codeOf(status: number, said: Status): ClusterApiErrorCode {
  if (status === 401) return 'Unauthorized'
  if (NOT_IN_SCHEMA.test(said.message ?? '')) return 'Invalid'
  if (REFUSED_FOR_NOW.test(said.message ?? '')) return 'Unavailable'
  if (status === 403) {
    // A terminating namespace also ends by itself, and may be created again.
    const ending = said.details?.causes?.some(({ reason }) => reason === 'NamespaceTerminating')
    return ending === true ? 'Conflict' : 'Forbidden'
  }
  if (status === 404) return 'NotFound'
  if (status === 409) return 'Conflict'
  if (status === 410 || status === 408 || status === 429 || status >= 500) return 'Unavailable'
  return 'Invalid'
}

function asStatus(body: unknown): Status {
  if (typeof body !== 'object' || body === null) return {}
  const { message, reason, details } = body as { message?: unknown; reason?: unknown; details?: unknown }
  return {
    ...(typeof message === 'string' && message !== '' ? { message } : {}),
    ...(typeof reason === 'string' && reason !== '' ? { reason } : {}),
    ...(typeof details === 'object' && details !== null ? { details } : {}),
  }
}

/** A text of a server as a part of a message. */
export function oneLine(text: string): string {
  const line = text.replace(/\s+/g, ' ')
  return line.length <= MAX_SAID ? line : `${line.slice(0, MAX_SAID)}…`
}
