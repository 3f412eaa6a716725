/** Leases of a site without Kubernetes, kept in its state folder. */
import t from 'tap'
import { leaseStoreCompliance } from '../../../compliance/lease-store.ts'
import { FileSite } from '../file-site.ts'

leaseStoreCompliance(t, (t) => {
  const site = new FileSite(t)
  return Promise.resolve(() => Promise.resolve(site.open().leases))
})
