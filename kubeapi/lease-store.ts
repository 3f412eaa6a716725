/**
 * Leases as registers that several processes write: each write names the version that was read, and the slower one is
 * refused. Drivers: kube/kube-lease-store.ts, files/leases/file-leases.ts; for tests
 * test/gateway/support/fake-leases.ts. One compliance suite: test/compliance/lease-store.ts.
 */
import type { Lease, ObjectMeta } from '../model/objects.ts'

export type StoredLease = Lease & { readonly metadata: ObjectMeta & { readonly resourceVersion?: string } }

export interface LeaseStore {
  /** What the server has now, past all caches; undefined when there is none. Throws ClusterApiError. */
  read(name: string, signal: AbortSignal): Promise<StoredLease | undefined>
  /**
   * Makes it where `metadata.resourceVersion` is absent, else replaces that version. Gives what is stored. The
   * namespace is the store's own. Throws ClusterApiError Conflict when somebody was faster.
   */
  write(lease: StoredLease, signal: AbortSignal): Promise<StoredLease>
}
