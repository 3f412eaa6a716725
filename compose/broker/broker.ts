/** The process of a broker, and its store for commands. */
export {
  type AuthorityFacts,
  type AuthorityStatus,
  type AuthorityStep,
  type AuthorityStore,
  withAuthorityStore,
} from './authority.ts'
export {
  type Finding,
  type Restored,
  type Verified,
  backupState,
  restoreState,
  timeOfBackup,
  verifyWhat,
} from './backup.ts'
export { type ClustersetSummary, type CreateClustersetInit, clustersetState, withClustersets } from './clustersets.ts'
export { cancelMove, moveStore } from './migrate.ts'
export { type EtcdStoreConfig, serveBrokerProcess } from './serve.ts'
export { type BrokerStatus, type StatusProblem, brokerStatus, isServed, worstOf } from './status.ts'
export {
  type Answer,
  type AnswerInit,
  type BrokerStore,
  type Eviction,
  type MemberSummary,
  type RekeyInit,
  type TokenInit,
  type TokenSummary,
  type WaitingSummary,
  withBrokerStore,
} from './store.ts'
