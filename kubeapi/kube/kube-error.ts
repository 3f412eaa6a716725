/** What an API server, or its absence, says: classified here and nowhere else. */
import { messageOf } from '../../runtime/runtime.ts'
import { ClusterApiError, type ClusterApiErrorCode } from '../kubeapi.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/** What was asked: `apply`, `ServiceImport shop/web`. */
export interface RequestLine {
  readonly verb: string
  readonly title: string
}

/** metav1.Status, as far as it is used. */
interface Status {
  readonly message?: string
  readonly reason?: string
  readonly details?: {
    readonly kind?: string
    readonly retryAfterSeconds?: number
    readonly causes?: readonly { readonly reason?: string; readonly message?: string }[]
  }
}

/** The words of ours for what is no answer. */
const OWN_REASONS = ['NoAnswer', 'NoConnection', 'NoLogin', 'TooLarge'] as const satisfies readonly ReasonCode[]

export interface KubeErrorInit {
  readonly code: ClusterApiErrorCode
  /** HTTP status; 0 when there was no answer. */
  readonly status: number
  /**
   * metav1.StatusReason, or a word of ours for what is no answer: `NoAnswer`, `NoConnection`, `NoLogin`, `TooLarge`.
   */
  readonly reason: string
  /** What the answer is about, as the server says it: `nodes`. Absent from what a proxy says. */
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

  /** Where there was no answer that counts: why, in our own words. */
  get ownReason(): ReasonCode | undefined {
    return OWN_REASONS.find((one) => one === this.reason)
  }

  /** The same question may be answered when it is asked again. */
  get passing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500
  }
}

/** Servers behind proxies send whole pages; a message is a line. */
const MAX_SAID = 1000

/** An answer that is no success. `body` is what came with it: mostly a Status, sometimes a proxy's text. */
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

/** Our side could not even say who we are. */
export class LoginError extends Error {
  constructor(cause: unknown) {
    super(messageOf(cause), { cause })
    this.name = 'LoginError'
  }
}

/** No answer at all: refused, cut, not trusted, not logged in. */
export function errorFromConnection(asked: RequestLine, server: string, error: unknown): KubeError {
  if (error instanceof KubeError) return error
  if (error instanceof LoginError) {
    return new KubeError(
      `${asked.verb} ${asked.title}: cannot log in to the API server at ${server}: ${oneLine(error.message)}`,
      { code: 'Unauthorized', status: 401, reason: 'NoLogin', cause: error },
    )
  }
  const message = error instanceof Error ? (error.message === '' ? error.name : error.message) : String(error)
  return new KubeError(
    `${asked.verb} ${asked.title}: the API server at ${server} cannot be reached: ${oneLine(message)}`,
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
    `${asked.verb} ${asked.title}: the API server at ${server} gave no answer within ${ms / 1000} s`,
    {
      code: 'Unavailable',
      status: 0,
      reason: 'NoAnswer',
    },
  )
}

/**
 * Refusals that pass by themselves: of new objects while their CustomResourceDefinition is going (403), and by an
 * admission policy whose parameter, an object of such a kind, is not there yet (422). It has no other mark than its
 * words.
 */
const REFUSED_FOR_NOW =
  /create not allowed while custom resource definition is terminating|no params found for policy binding with/

function codeOf(status: number, said: Status): ClusterApiErrorCode {
  if (status === 401) return 'Unauthorized'
  if (REFUSED_FOR_NOW.test(said.message ?? '')) return 'Unavailable'
  if (status === 403) {
    // The one refusal that passes by itself: the namespace is going, and may come again.
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

function oneLine(text: string): string {
  const line = text.replace(/\s+/g, ' ')
  return line.length <= MAX_SAID ? line : `${line.slice(0, MAX_SAID)}…`
}
