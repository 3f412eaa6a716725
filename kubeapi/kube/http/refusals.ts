/**
 * Records which requests the API server refuses to this process, and why, for operators who look for the cause of an
 * inactive component. An entry is removed when its request succeeds, when the object that was to be created exists, or
 * when it has not been tried for a while.
 */
import type { Clock } from '../../../reconcile/reconcile.ts'
import { fitText, printable } from '../../../model/model.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'
import { KubeError } from '../kube-error.ts'

export type RefusedAs = Extract<
  ReasonCode,
  'PartForbidden' | 'AdmissionRefuses' | 'ApiServerReadOnly' | 'ObjectNotWritten'
>

/** One kind of refused request, without object names: everyone with access to the status page can read it. */
export interface Refusal {
  readonly code: RefusedAs
  /** `patch serviceimports.multicluster.x-k8s.io/status` */
  readonly what: string
  /** What refuses it, if the server names it: `webhook deny.example.com`. */
  readonly by?: string
  /** The number of affected objects or lists; at most MOST_PLACES are counted. */
  readonly places: number
  /** RFC 3339: the times of the first and the last refusal. */
  readonly since: string
  readonly last: string
}

/** Most requests that are still needed are retried within half a minute; an identity is renewed every ten minutes. */
const FORGET_MS = 120_000
const FORGET_SECRETS_MS = 15 * 60_000
/** A candidate for a Lease retries every few seconds, until it has seen that another one holds it. */
const FORGET_HELD_MS = 30_000
/** A single failed write may have any cause: the server counts as read-only after several failures over this time. */
const READ_ONLY = { writes: 2, ms: 2000 }
/**
 * An unanswered write is weaker evidence: on a busy machine, or when the connection breaks, a few are late and the next
 * one succeeds. Without a majority of etcd none does.
 */
const UNANSWERED = { writes: 3, ms: 25_000 }
/** Bounds the memory if a server refuses everything. */
const MOST_KINDS = 50
const MOST_PLACES = 100

interface Entry {
  readonly code: RefusedAs
  readonly what: string
  by: string | undefined
  readonly places: Set<string>
  readonly sinceMs: number
  lastMs: number
  count: number
  /** A read succeeded between two failures, so the server is reachable. An unreachable server is not read-only. */
  isThere: boolean
  /** The server itself has answered that a write failed. */
  isAnswered: boolean
  /** etcd itself reported it. */
  isSure: boolean
}

/** The relevant parts of a request. */
export interface ApiRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly path: string
  readonly verb: string
  /** The path of the object that the request creates; `path` is its collection. */
  readonly creates?: string
}

export class Refusals {
  readonly #clock: Pick<Clock, 'now'>
  readonly #entries = new Map<string, Entry>()
  #readMs = -Infinity

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock
  }

  /** Sorted by code and request. */
  list(): readonly Refusal[] {
    this.#forgetOld()
    return [...this.#entries]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .filter(([, entry]) => entry.code !== 'ApiServerReadOnly' || this.#isReadOnly(entry))
      .map(([, { code, what, by, places, sinceMs, lastMs }]) => ({
        ...{ code, what },
        ...(by === undefined ? {} : { by }),
        ...{ places: places.size, since: timeOf(sinceMs), last: timeOf(lastMs) },
      }))
  }

  /** Records how a request ended. Failures that are not refusals are ignored. */
  failed(request: ApiRequest, error: unknown): void {
    if (!(error instanceof KubeError)) return
    // An apply that would create a missing object.
    const isCreate = request.method === 'PATCH' && NO_RIGHT_TO_CREATE.test(error.message)
    const asked: ApiRequest = isCreate ? { ...request, method: 'POST', creates: request.path } : request
    if (asked.creates !== undefined && error.reason === 'AlreadyExists') this.#found(asked.creates)
    const code = refusalOf(asked, error)
    if (code === undefined) return
    this.#forgetOld()
    const entry = this.#entryOf(code, requestText(asked))
    if (entry === undefined) return
    entry.lastMs = this.#clock.now()
    entry.count += 1
    entry.isThere ||= this.#readMs > entry.sinceMs
    entry.isAnswered ||= error.status > 0
    entry.isSure ||= NO_SPACE.test(error.message)
    entry.by = whoRefuses(error.message)
    if (entry.places.size < MOST_PLACES) entry.places.add(asked.creates ?? asked.path)
  }

  succeeded(asked: ApiRequest): void {
    if (!isWrite(asked)) this.#readMs = this.#clock.now()
    if (this.#entries.size === 0) return
    const what = requestText(asked)
    for (const [key, entry] of this.#entries) {
      if (entry.code === 'ApiServerReadOnly' && isWrite(asked)) this.#entries.delete(key)
      else if (entry.what === what) this.#done(key, asked.creates ?? asked.path)
    }
    if (asked.method !== 'POST' && asked.method !== 'DELETE') this.#found(asked.path)
  }

  /** Another client has created what this process was not allowed to create. */
  #found(path: string): void {
    for (const [key, { what }] of this.#entries) if (what.startsWith('create ')) this.#done(key, path)
  }

  #done(key: string, place: string): void {
    const places = this.#entries.get(key)?.places
    if (places?.delete(place) === true && places.size === 0) this.#entries.delete(key)
  }

  /** Whether no write has succeeded since, although the server answers. */
  #isReadOnly({ count, sinceMs, lastMs, isThere, isAnswered, isSure }: Entry): boolean {
    const { writes, ms } = isAnswered ? READ_ONLY : UNANSWERED
    return isSure || (isThere && count >= writes && lastMs - sinceMs >= ms)
  }

  #entryOf(code: RefusedAs, what: string): Entry | undefined {
    const key = `${code} ${what}`
    const known = this.#entries.get(key)
    if (known !== undefined || this.#entries.size >= MOST_KINDS) return known
    const nowMs = this.#clock.now()
    const proof = { count: 0, isThere: false, isAnswered: false, isSure: false }
    const made = { code, what, by: undefined, places: new Set<string>() }
    const entry: Entry = { ...made, ...proof, sinceMs: nowMs, lastMs: nowMs }
    this.#entries.set(key, entry)
    return entry
  }

  #forgetOld(): void {
    const nowMs = this.#clock.now()
    for (const [key, { lastMs, what }] of this.#entries) {
      if (nowMs - lastMs > forgetMs(what)) this.#entries.delete(key)
    }
  }
}

function forgetMs(what: string): number {
  if (/\bsecrets\b/.test(what)) return FORGET_SECRETS_MS
  return /^(?:create|update) leases\b/.test(what) ? FORGET_HELD_MS : FORGET_MS
}

const isWrite = ({ method }: ApiRequest): boolean => method !== 'GET'

/** Phrases of the Kubernetes authorizers, of admission, and of the storage behind the server. */
const NO_RIGHT = /\bcannot (?:get|list|watch|create|update|patch|delete|deletecollection) resource\b/
const NO_RIGHT_TO_CREATE = /\bcannot create resource\b/
const ADMISSION =
  /admission webhook|failed calling webhook|ValidatingAdmissionPolicy|MutatingAdmissionPolicy|exceeded quota/

/** Whether this user lacks the permission. Otherwise every user gets the same refusal for the same request. */
export function lacksRight({ status, message }: KubeError): boolean {
  return status === 403 && NO_RIGHT.test(message)
}

/** The message for a namespace that is being deleted; its writers stop by themselves. */
const GOING = /because it is being terminated/
const NO_SPACE = /database space exceeded/
/** Events are only for users to read; everything works without them. */
const EVENTS = /\/events(?:\/|$)/

function refusalOf(asked: ApiRequest, { status, code, message }: KubeError): RefusedAs | undefined {
  if (EVENTS.test(asked.path) || GOING.test(message)) return undefined
  const isRefusal = code === 'Forbidden' || code === 'Invalid'
  if (isWrite(asked) && ADMISSION.test(message) && (isRefusal || status >= 500)) return 'AdmissionRefuses'
  if (code === 'Forbidden' && status === 403)
    return isWrite(asked) && !NO_RIGHT.test(message) ? 'AdmissionRefuses' : 'PartForbidden'
  if (!isWrite(asked)) return undefined
  if (code === 'Invalid' && (status === 400 || status === 422)) return 'ObjectNotWritten'
  // 429 means that the server requests a later retry; 0 means that no answer arrived.
  return status >= 500 || status === 0 ? 'ApiServerReadOnly' : undefined
}

const MOST_NAME = 100
const BY = [
  [/(?:admission webhook|failed calling webhook) "([^"]+)"/, 'webhook'],
  [/((?:Validating|Mutating)AdmissionPolicy) '([^']+)'/, ''],
  [/exceeded quota: ([^,\s]+)/, 'quota'],
] as const

function whoRefuses(message: string): string | undefined {
  for (const [pattern, kind] of BY) {
    const [, first = '', second] = pattern.exec(message) ?? []
    if (first === '') continue
    const text = second === undefined ? `${kind} ${first}` : `${first} ${second}`
    return fitText(printable(text), MOST_NAME)
  }
  return undefined
}

/** `/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME/SUBRESOURCE`; the core group is below `/api/v1`. */
const PATH = /^\/(?:api|apis\/([^/]+))\/[^/]+\/(?:namespaces\/[^/]+\/(?=[^/]))?([^/]+)(?:\/[^/]+(?:\/([^/]+))?)?$/

const VERBS: Readonly<Record<string, string>> = {
  POST: 'create',
  PUT: 'update',
  PATCH: 'patch',
  DELETE: 'delete',
}

/** Formats a request like a rule in a role, without the object: `patch gateways.sealane.io/status`. */
function requestText({ method, path, verb }: ApiRequest): string {
  const [, group, plural, subresource] = PATH.exec(path) ?? []
  const action = method === 'GET' ? verb : (VERBS[method] ?? verb)
  if (plural === undefined) return action
  return `${action} ${plural}${group === undefined ? '' : `.${group}`}${subresource === undefined ? '' : `/${subresource}`}`
}

function timeOf(ms: number): string {
  return new Date(ms).toISOString()
}
