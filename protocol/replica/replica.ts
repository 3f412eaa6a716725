/** A member's copy of the records of the clusterset, in memory and on disk. */
export { Replica, type ReplicaChange, ReplicaError } from './record-replica.ts'
export { type ReplicaStore, replicaFile } from './replica-file.ts'
