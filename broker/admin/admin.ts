/** The commands of operators on a broker: members, tokens, authorities, clustersets, status, backups. */
export { administration } from './administration.ts'
export { type AdminStates, OfflineStates, ServedStates, callerActor, operatorActor } from './command-state.ts'
export { readServing } from './read-status.ts'
export { type TopologySink, topologySink } from './topology-sink.ts'
