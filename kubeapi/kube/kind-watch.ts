/**
 * Watches one kind permanently: a complete list in pages, then a watch from its version, and another list whenever
 * events may have been missed. Received objects stay until a complete list contradicts them.
 *
 *   listing ─► watching ─► (the server ends it in time) ─► watching …
 *      ▲           │
 *      └─ resting ◄┴─ any failure, 410, a version that went back
 */
import type { Kind } from '../../model/model.ts'
import type { RawObject } from '../../model/schemas/schemas.ts'
import { Backoff, type Clock } from '../../reconcile/reconcile.ts'
import { errorOf, messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { HttpClient, HttpRequest } from './http/http-client.ts'
import type { KindObjects } from './kind-objects.ts'
import { KIND_PLACES, groupPath, kindPath } from './kinds.ts'
import { KubeError, errorFromAnswer } from './kube-error.ts'
import type { KubeMetrics } from './metrics.ts'

// The body of a watch: one JSON object per line.

/** An object in etcd has at most 1.5 MB, and an event contains only one; as JSON it fits well. */
const MAX_LINE = 8 << 20

/** Yields each complete line. Throws Error if a line is too long. */
async function* lines(body: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let parts: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    let start = 0
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      const last = chunk.subarray(start, end)
      const line = parts.length === 0 ? last : Buffer.concat([...parts, last])
      parts = []
      size = 0
      start = end + 1
      if (line.length > 0) yield line.toString()
    }
    if (start === chunk.length) continue
    parts.push(chunk.subarray(start))
    size += chunk.length - start
    if (size > MAX_LINE) throw new Error(`a line of the watch is longer than ${MAX_LINE} bytes`)
  }
}

/** Selects objects of a kind. */
export interface Selector {
  readonly labelSelector?: string
  readonly fieldSelector?: string
  readonly namespace?: string
}

export interface KindWatchDeps<K extends Kind> {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: KubeMetrics
  readonly http: HttpClient
  readonly objects: KindObjects<K>
}

interface ObjectList {
  readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string }
  readonly items?: readonly RawObject[]
}

interface WatchEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR'
  readonly object: RawObject
}

const PAGE = 500
const SMALLEST_PAGE = 10
const REST = { minMs: 200, maxMs: 10_000 }
/** A kind that is not installed or not allowed usually stays so for a while. */
const REFUSED_REST = { minMs: 1000, maxMs: 30_000 }
/** How long the server holds a watch open: 5 to 10 minutes where pings detect a dead peer, as in client-go. */
const WATCH_SECONDS = 300
/** Without pings, a dead peer is detected only because the watch does not end in time: after 20 s and 8 s more. */
const UNPINGED_WATCH_SECONDS = 20
const WATCH_GRACE_MS = 8000
const SHORTEST_WATCH_MS = 1000
/** A watch that lasted this long counts as successful. */
const GOOD_WATCH_MS = 5000

export class KindWatch<K extends Kind> {
  readonly #deps: KindWatchDeps<K>
  readonly #selector: Selector
  #page = PAGE
  /** Version to watch from; undefined if a new list is needed. */
  #version: string | undefined
  /** The current problem, logged once. */
  #trouble: string | undefined
  /** How often in a row the server's list of kinds had the kind, although it could not be read. */
  #listed = 0

  constructor(deps: KindWatchDeps<K>, selector: Selector) {
    this.#deps = deps
    this.#selector = selector
  }

  /** Why the kind cannot be watched at present. */
  get trouble(): string | undefined {
    return this.#trouble
  }

  /** Resolves when the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    const rest = new Backoff(clock, REST)
    const refused = new Backoff(clock, REFUSED_REST)
    while (!signal.aborted) {
      const started = clock.monotonic()
      const failure = await this.#round(started, refused, signal)
      const lived = clock.monotonic() - started
      if (failure === undefined || lived >= GOOD_WATCH_MS) rest.reset()
      if (failure === undefined) continue
      await clock.sleep((isRefusal(failure) ? refused : rest).next(), signal).catch(() => undefined)
    }
  }

  /**
   * Runs a list, if needed, and one watch. Returns the error that ended it; undefined if the server ended it in time,
   * or if the signal was aborted.
   */
  async #round(started: number, refused: Backoff, signal: AbortSignal): Promise<Error | undefined> {
    try {
      if (this.#version === undefined) await this.#list(signal)
      refused.reset()
      await this.#watch(signal)
      // A server that ends watches at once would cause a busy loop.
      if (this.#deps.clock.monotonic() - started < SHORTEST_WATCH_MS)
        throw new Error('the server ended the watch at once')
      return undefined
    } catch (error) {
      if (signal.aborted) return undefined
      this.#version = undefined
      this.#note(error)
      if (isNotFound(error) || isForbidden(error)) await this.#lookForKind(signal)
      return errorOf(error)
    }
  }

  /**
   * Reads all pages or fails. Without a resourceVersion, the answer includes every write that completed before the
   * request.
   */
  async #list(signal: AbortSignal): Promise<void> {
    const { objects, http, metrics } = this.#deps
    const list = objects.beginList()
    let next: string | undefined
    do {
      const query = { ...this.#query(), limit: this.#page, continue: next }
      const { body } = await http.ask<ObjectList>({ ...this.#question('list'), query }, signal)
      if (!Array.isArray(body.items) || body.metadata?.resourceVersion === undefined) {
        throw new Error('the answer is not a list')
      }
      for (const raw of body.items as readonly RawObject[]) list.add(raw)
      next = body.metadata.continue === '' ? undefined : body.metadata.continue
      this.#version = next === undefined ? body.metadata.resourceVersion : undefined
    } while (next !== undefined)
    objects.finishList(list)
    metrics.relists.inc({ kind: objects.kind })
    this.#count()
    this.#mended()
  }

  /** Resolves when the server ends the watch; throws on any other end. */
  async #watch(signal: AbortSignal): Promise<void> {
    const { clock, http } = this.#deps
    const seconds = http.pinged ? WATCH_SECONDS * (1 + clock.random()) : UNPINGED_WATCH_SECONDS
    const silent = new AbortController()
    const cancel = clock.setTimer(Math.ceil(seconds) * 1000 + WATCH_GRACE_MS, () => {
      silent.abort(new Error('the watch went silent'))
    })
    try {
      const query = {
        ...this.#query(),
        watch: true,
        allowWatchBookmarks: true,
        resourceVersion: this.#version,
        timeoutSeconds: Math.ceil(seconds),
      }
      const limited = AbortSignal.any([signal, silent.signal])
      const { body } = await http.open({ ...this.#question('watch'), query }, limited)
      for await (const line of lines(body as AsyncIterable<Buffer>)) this.#take(JSON.parse(line) as WatchEvent)
    } catch (error) {
      throw silent.signal.aborted ? silent.signal.reason : error
    } finally {
      cancel()
    }
  }

  #take({ type, object }: WatchEvent): void {
    const { objects, metrics } = this.#deps
    if (type === 'ERROR') {
      const { code } = object as { code?: unknown }
      throw errorFromAnswer(this.#question('watch'), typeof code === 'number' ? code : 500, object)
    }
    const version = object.metadata.resourceVersion
    // After a server was restored from a backup, the watch would wait for versions that lie far in the future.
    if (Number(version) < Number(this.#version)) throw new Error('the resource versions went back')
    this.#version = version ?? this.#version
    if (type === 'BOOKMARK') return
    metrics.events.inc({ kind: objects.kind })
    if (type === 'DELETED') objects.drop(object)
    else objects.take(object)
    this.#count()
  }

  /**
   * A proxy may answer 404 too while the server stops. A server refuses a kind that it does not know with 403 if no role
   * names it, as after an upgrade of the image alone. So a kind counts as unknown only if the server's own list of the
   * kinds of this version lacks it, which every client may read.
   */
  async #lookForKind(signal: AbortSignal): Promise<void> {
    const { objects, http } = this.#deps
    if (objects.cache.synced) return
    const { apiVersion, plural } = KIND_PLACES[objects.kind]
    const question = { verb: 'discover', title: apiVersion, method: 'GET', path: groupPath(apiVersion) } as const
    try {
      const { body } = await http.ask<{ readonly resources?: readonly { readonly name?: string }[] }>(question, signal)
      const { resources } = body
      if (!Array.isArray(resources)) return
      const isListed = resources.some(({ name }) => name === plural)
      this.#listed = isListed ? this.#listed + 1 : 0
      if (!isListed) objects.cache.markUnserved()
      // An upgrade brings the kind and then the right to read it. Without the right, objects may be there unread.
      else if (this.#listed > 1) objects.cache.markServed()
    } catch {
      // The next failure asks again.
    }
  }

  #query(): Record<string, string | undefined> {
    return { labelSelector: this.#selector.labelSelector, fieldSelector: this.#selector.fieldSelector }
  }

  #question(verb: 'list' | 'watch'): HttpRequest {
    const { kind } = this.#deps.objects
    const { namespace } = this.#selector
    return {
      verb,
      title: `${KIND_PLACES[kind].plural}${namespace === undefined ? '' : ` in ${namespace}`}`,
      method: 'GET',
      path: kindPath(kind, namespace),
    }
  }

  #count(): void {
    this.#deps.metrics.objects.set(this.#deps.objects.size, { kind: this.#deps.objects.kind })
  }

  #note(error: unknown): void {
    const { logger, objects } = this.#deps
    if (error instanceof KubeError && error.reason === 'TooLarge') this.#page = Math.max(SMALLEST_PAGE, this.#page >> 1)
    const reason = troubleText(objects.kind, error)
    // A watch that was interrupted for long ends with a version that is too old; the list that follows resolves it.
    if (error instanceof KubeError && error.status === 410) logger.debug(`${objects.kind}: ${reason}`)
    else if (reason !== this.#trouble) {
      this.#trouble = reason
      const named = (error instanceof KubeError ? error.ownReason : undefined) ?? 'ObjectsNotFollowed'
      logger.warn(`cannot watch ${objects.kind} objects: ${reason}`, { reason: named, kind: objects.kind })
    }
  }

  #mended(): void {
    if (this.#trouble === undefined) return
    this.#trouble = undefined
    this.#deps.logger.info(`watching ${this.#deps.objects.kind} objects again`, { kind: this.#deps.objects.kind })
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof KubeError && !error.passing && error.status !== 410 && error.reason !== 'TooLarge'
}

function isNotFound(error: unknown): boolean {
  return error instanceof KubeError && error.status === 404
}

function isForbidden(error: unknown): boolean {
  return error instanceof KubeError && error.status === 403
}

function troubleText(kind: Kind, error: unknown): string {
  if (isNotFound(error)) {
    return `the API server does not know ${KIND_PLACES[kind].apiVersion} ${KIND_PLACES[kind].plural} (is its CustomResourceDefinition installed?)`
  }
  return messageOf(error)
}
