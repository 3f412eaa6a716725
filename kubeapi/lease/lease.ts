/** The public interface of this room: one Lease as one process holds it, and the election of one leader by a Lease. */
export { Election, type ElectionDeps, type ElectionInit } from './election.ts'
export { LEASE_REQUEST_MS, LeaseHold } from './lease-hold.ts'
export {
  type HeldLease,
  type LeaseMarks,
  hasLapsed,
  holderOf,
  isRenewalDue,
  knownIn,
  whyVacant,
  writtenIn,
} from './plan-hold.ts'
