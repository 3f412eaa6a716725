/**
 * The watches of a hub. Each reader has the set of keys that it has not been sent yet, so a slow one costs no more than
 * that set, and gets the present object and not each change. An object is encoded once for all readers.
 */
import type { ServerHttp2Stream } from 'node:http2'
import type { KubeObject } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { ObjectCache } from '../kubeapi.ts'
import { NO_NAMESPACE, type ObjectKey, keyOf } from '../driver/driver.ts'
import type { Seen, WatchLine } from './wire.ts'

/** A reader that takes nothing for this long is disconnected. */
const STUCK_MS = 60_000

export interface WatchedKindDeps {
  readonly clock: Clock
  /** Identifies this hub process. */
  readonly epoch: string
}

/** One kind, and the readers that watch it. */
export class WatchedKind {
  readonly cache: ObjectCache<KubeObject>
  readonly #deps: WatchedKindDeps
  readonly #readers = new Set<Reader>()
  readonly #encoded = new WeakMap<KubeObject, string>()
  readonly #stop: () => void
  #rev = 0

  constructor(deps: WatchedKindDeps, cache: ObjectCache<KubeObject>) {
    this.#deps = deps
    this.cache = cache
    this.#stop = cache.onChange((change) => {
      this.#rev += 1
      if (change === undefined) return
      const key = keyOf(change.object)
      for (const reader of this.#readers) reader.add(key)
    })
  }

  get seen(): Seen {
    return { epoch: this.#deps.epoch, rev: this.#rev }
  }

  /** Sends all objects and then each change, until the stream ends. The cache must be synced. */
  serve(stream: ServerHttp2Stream): void {
    const reader = new Reader(this.#deps.clock, stream, {
      line: (key) => this.#line(key),
      mark: () => lineOf(this.seen),
      rev: () => this.#rev,
    })
    this.#readers.add(reader)
    stream.on('close', () => {
      this.#readers.delete(reader)
      reader.close()
    })
    for (const object of this.cache.list()) reader.add(keyOf(object))
    reader.start()
  }

  close(): void {
    this.#stop()
  }

  #line(key: ObjectKey): string {
    const cut = key.indexOf('/')
    const [namespace, name] = [key.slice(0, cut), key.slice(cut + 1)]
    const scope = namespace === NO_NAMESPACE ? {} : { namespace }
    const object = this.cache.get(name, scope.namespace)
    if (object === undefined) return lineOf({ removed: { name, ...scope } })
    const known = this.#encoded.get(object)
    if (known !== undefined) return known
    const line = lineOf({ set: object })
    this.#encoded.set(object, line)
    return line
  }
}

function lineOf(line: WatchLine): string {
  return `${JSON.stringify(line)}\n`
}

interface ReaderInit {
  readonly line: (key: ObjectKey) => string
  readonly mark: () => string
  readonly rev: () => number
}

class Reader {
  readonly #clock: Clock
  readonly #stream: ServerHttp2Stream
  readonly #init: ReaderInit
  readonly #pending = new Set<ObjectKey>()
  #markedRev: number | undefined
  #state: 'gathering' | 'sending' | 'blocked' | 'closed' = 'gathering'
  #cancel: () => void = () => undefined

  constructor(clock: Clock, stream: ServerHttp2Stream, init: ReaderInit) {
    this.#clock = clock
    this.#stream = stream
    this.#init = init
    stream.on('drain', () => {
      if (this.#state !== 'blocked') return
      this.#cancel()
      this.#state = 'sending'
      this.#send()
    })
  }

  add(key: ObjectKey): void {
    this.#pending.add(key)
    if (this.#state !== 'sending') return
    // Several changes of one turn go out together.
    this.#state = 'gathering'
    queueMicrotask(() => this.start())
  }

  start(): void {
    if (this.#state !== 'gathering') return
    this.#state = 'sending'
    this.#send()
  }

  close(): void {
    this.#state = 'closed'
    this.#cancel()
    this.#pending.clear()
  }

  #send(): void {
    for (const key of this.#pending) {
      this.#pending.delete(key)
      if (!this.#write(this.#init.line(key))) return
    }
    const rev = this.#init.rev()
    if (rev === this.#markedRev) return
    this.#markedRev = rev
    this.#write(this.#init.mark())
  }

  /** False if the reader has to catch up first. */
  #write(line: string): boolean {
    if (this.#state !== 'sending' || this.#stream.destroyed) return false
    if (this.#stream.write(line)) return true
    this.#state = 'blocked'
    this.#cancel = this.#clock.setTimer(STUCK_MS, () => this.#stream.destroy())
    return false
  }
}
