/** Commands of operators on members, authorities and clustersets of a store, and its status. */
export { type AuthorityStep, type AuthorityStore, type RotateInit, openAuthorityStore } from './authority-commands.ts'
export { type BrokerStatus, type Health, type StatusProblem, worstOf } from './broker-status.ts'
export { ClustersetStore, type ClustersetSummary, type CreateClustersetInit } from './clusterset-commands.ts'
export {
  type NamedClusterset,
  clustersetConfig,
  clustersetDir,
  clustersetRows,
  clustersetUrl,
  noteOpened,
  ownName,
  servedClustersets,
  unknownClusterset,
} from './clusterset-rows.ts'
export {
  type BrokerStore,
  type RekeyInit,
  type TokenInit,
  type TokenSummary,
  openBrokerStore,
} from './member-commands.ts'
export { readBrokerStatus, readServing } from './read-status.ts'
