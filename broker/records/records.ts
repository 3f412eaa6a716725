/** Admission of records, their writes, statuses and quotas. */
export { quote } from '../../model/grammar/grammar.ts'
export { admitFacts, admitLabels, admitSpace, admitStatus, publicCIDRs } from './admission-facts.ts'
export { type Refusal, admitRecord, checkSize, denied, refusal, refusedFacts } from './admission.ts'
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
export {
  type SetTopologyInit,
  TOPOLOGY_KEY,
  checkFollowed,
  releaseTopology,
  setTopology,
  topologyInForce,
  topologyOwner,
  topologyRecord,
} from './topology-record.ts'
export { StatusRateLimiter, removeStatusRecord, statusOf, writeStatusRecord } from './status-records.ts'
