/** Commands of operators on members, authorities and clustersets of a store, and its status. */
export { AuthorityCommands } from './authority-commands.ts'
export { ClustersetCommands } from './clusterset-commands.ts'
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
  type AdminState,
  type AdminStates,
  type CommandInit,
  OfflineStates,
  type StateUse,
  clustersetStateDir,
  openState,
  operatorActor,
} from './command-state.ts'
export { MemberCommands } from './member-commands.ts'
export { readBrokerStatus, readServing } from './read-status.ts'
