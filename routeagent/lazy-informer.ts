/** A cache that is opened when it is needed, and not before: a node that needs none costs the API server nothing. */
import type { ObjectCache, ObjectChange } from '../kubeapi/cluster-api.ts'
import { Listeners } from '../reconcile/listeners.ts'

export type CacheListener<T> = (change: ObjectChange<T> | undefined) => void

export class LazyInformer<T> {
  readonly #make: () => ObjectCache<T>
  readonly #listeners = new Listeners<Parameters<CacheListener<T>>>()
  #cache: ObjectCache<T> | undefined

  constructor(make: () => ObjectCache<T>) {
    this.#make = make
  }

  /** The cache; started by the first call. */
  open(): ObjectCache<T> {
    if (this.#cache !== undefined) return this.#cache
    this.#cache = this.#make()
    this.#cache.onChange((change) => this.#listeners.call(change))
    return this.#cache
  }

  /** As ObjectCache.onChange(), from when it is open. Gives the function that ends it. */
  onChange(listener: CacheListener<T>): () => void {
    return this.#listeners.add(listener)
  }
}
