/** Leases in memory, which the caches of the same cluster show. */
import { ClusterApiError, type LeaseStore, type StoredLease } from '../../../kubeapi/cluster-api.ts'
import type { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'

const NAMESPACE = 'sealane-system'

export class FakeLeases implements LeaseStore {
  readonly #objects: MemoryApi
  readonly #leases = new Map<string, StoredLease>()
  #version = 0
  /** While this is set, each call fails with it. */
  failure: ClusterApiError | undefined
  /** While true, a garbage collector removes each Lease as soon as it is written. */
  collects = false

  constructor(objects: MemoryApi) {
    this.#objects = objects
  }

  get(name: string): StoredLease | undefined {
    return this.#leases.get(name)
  }

  async read(name: string, signal?: AbortSignal): Promise<StoredLease | undefined> {
    await Promise.resolve()
    signal?.throwIfAborted()
    if (this.failure !== undefined) throw this.failure
    return this.#leases.get(name)
  }

  async write(lease: StoredLease, signal?: AbortSignal): Promise<StoredLease> {
    await Promise.resolve()
    signal?.throwIfAborted()
    if (this.failure !== undefined) throw this.failure
    const { name, resourceVersion } = lease.metadata
    if (this.#leases.get(name)?.metadata.resourceVersion !== resourceVersion) {
      throw new ClusterApiError('Conflict', `Lease ${name}: the object has been modified`)
    }
    this.#version += 1
    const metadata = { ...lease.metadata, namespace: NAMESPACE, resourceVersion: String(this.#version) }
    const stored: StoredLease = { ...lease, metadata }
    this.#leases.set(name, stored)
    this.#objects.put(stored)
    if (this.collects) {
      this.#leases.delete(name)
      this.#objects.drop('Lease', name, NAMESPACE)
    }
    return stored
  }
}
