/** The process of a broker, and its state while none runs. */
export { type Restored, restoreState, timeOfBackup, verifyBackupFile } from './backup.ts'
export { cancelMove, moveStore } from './migrate.ts'
export { type OfflineInit, clustersetState, isServed, withOfflineBroker } from './offline.ts'
export { type EtcdStoreConfig, serveBrokerProcess } from './serve.ts'
