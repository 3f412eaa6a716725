/** The process of a broker, and its state while none runs. */
export { cancelMove, moveStore } from './migrate.ts'
export {
  type OfflineInit,
  type Restored,
  clustersetState,
  isServed,
  restoreState,
  timeOfBackup,
  verifyBackupFile,
  withOfflineBroker,
} from './offline.ts'
export { type EtcdStoreConfig, serveBrokerProcess } from './serve.ts'
