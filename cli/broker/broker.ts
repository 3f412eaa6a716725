/** Administers a broker on this machine or in a cluster. */
export { refuseExisting, writeBackupFile } from './backup-file.ts'
export { deployBroker } from './deploy/deploy-broker.ts'
export {
  AUTO_ADVERTISE,
  type ReplicaOptions,
  parseEtcdEndpoints,
  parseEtcdPrefix,
  parseReplicas,
} from './deploy/deploy-options.ts'
export { brokerWorkload, storeUrlOf } from './deploy/installed-broker.ts'
export { brokerPods, podBroker } from './pod-broker.ts'
export { podStatus } from './pod-status.ts'
export { addQuotaOptions, bytesCell, fullRemarks, limitCell, parseOwnQuota, quotaLines, recordsCell } from './quota.ts'
export { type BrokerPlace, unservedText, withBroker } from './reach-broker.ts'
export { backupToStdout, runBackup, runRestore } from './run-backup.ts'
export { runVerify } from './run-verify.ts'
export { type ShownStatus, statusText } from './status-text.ts'
export { type TokenOptions, noToken, readTokenIfGiven, tokenText, writeTokenFile } from './token.ts'
