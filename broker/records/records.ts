/** Admission of records, their writes, statuses and quotas. */
export { type Refusal, denied, quote, refusal, refusedFacts } from './admission-checks.ts'
export { admitFacts, admitSpace, admitStatus, publicCIDRs } from './admission-facts.ts'
export { checkSize } from './admission-slice.ts'
export { MAX_CANDIDATES, admitRecord } from './admission.ts'
export { RangeWarnings, changeQuota, countQuotas, quotaAndUse, quotaOf } from './quota.ts'
export {
  type WriteContext,
  type WriteRules,
  admissionContext,
  forgetPublicKeys,
  memberRecords,
  pruneStamps,
  putRecord,
  removeRecord,
  statedKeys,
} from './record-writes.ts'
export { StatusRateLimiter, removeStatusRecord, statusOf, writeStatusRecord } from './status-records.ts'
