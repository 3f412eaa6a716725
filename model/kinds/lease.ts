/** The description of Lease. */
import { anyInteger, map, text, timestamp } from './fields.ts'

/** coordination.k8s.io/v1: a claim that expires unless its holder renews it. */
export const LEASE_FIELDS = map({
  spec: map({
    holderIdentity: text().optional(),
    leaseDurationSeconds: anyInteger('int32', '', 1).optional(),
    /** RFC 3339 with microseconds. */
    acquireTime: timestamp().optional(),
    renewTime: timestamp().optional(),
    leaseTransitions: anyInteger('int32', '', 0).optional(),
  }).optional(),
})
