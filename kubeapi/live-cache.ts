/** The ObjectCache that drivers fill: a map, listeners, and the moment of the first sync. */
import { Listeners } from '../reconcile/listeners.ts'
import type { ObjectCache, ObjectChange } from './cluster-api.ts'
import { type ObjectKey, objectKey } from './object-key.ts'

type Listener<T> = (change: ObjectChange<T> | undefined) => void

export class LiveCache<T> implements ObjectCache<T> {
  readonly #objects = new Map<ObjectKey, T>()
  readonly #listeners = new Listeners<Parameters<Listener<T>>>()
  #synced = false
  /** Kept between changes: list() is called far more often than objects change. */
  #list: readonly T[] | undefined

  get synced(): boolean {
    return this.#synced
  }

  /** In order of namespace and name, so that plans made from it are stable. */
  list(): readonly T[] {
    this.#list ??= Object.freeze([...this.#objects].sort(byKey).map(([, object]) => object))
    return this.#list
  }

  get(name: string, namespace?: string): T | undefined {
    return this.#objects.get(objectKey(name, namespace))
  }

  onChange(listener: Listener<T>): () => void {
    return this.#listeners.add(listener)
  }

  whenSynced(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason as Error)
    if (this.#synced) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const done = (): void => {
        stop()
        signal.removeEventListener('abort', onAbort)
      }
      const onAbort = (): void => {
        done()
        reject(signal.reason as Error)
      }
      const stop = this.onChange(() => {
        if (!this.#synced) return
        done()
        resolve()
      })
      signal.addEventListener('abort', onAbort, { once: true })
    })
  }

  /** Driver side: the object as it is now; undefined when it is gone. The caller has checked that it differs. */
  replace(key: ObjectKey, object: T | undefined): void {
    const previous = this.#objects.get(key)
    if (object === undefined && previous === undefined) return
    this.#list = undefined
    if (object === undefined) {
      this.#objects.delete(key)
      this.#report({ type: 'removed', object: previous as T })
    } else {
      this.#objects.set(key, object)
      this.#report({ type: 'set', object, previous })
    }
  }

  /** Driver side: everything that exists has been read once. */
  markSynced(): void {
    if (this.#synced) return
    this.#synced = true
    this.#report(undefined)
  }

  #report(change: ObjectChange<T> | undefined): void {
    this.#listeners.call(change)
  }
}

function byKey(a: readonly [string, unknown], b: readonly [string, unknown]): number {
  return a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0
}
