/** The broker's log of rows, its drivers in memory, on SQLite and on etcd, and the state directory. */
export {
  AUDIT_ACTS,
  type AuditAct,
  type AuditActor,
  type AuditEvent,
  type AuditInit,
  type AuditValue,
  auditEvent,
} from './audit-event.ts'
export {
  type NamedClusterset,
  clustersetConfig,
  clustersetDir,
  clustersetRows,
  clustersetUrl,
  createClusterset,
  noteOpened,
  ownName,
  removeClusterset,
  servedClustersets,
  unknownClusterset,
} from './clusterset-rows.ts'
export { connectEtcd, emptyAgain } from './etcd/connect-etcd.ts'
export { EtcdStore, readAuthorityKey, removeAuthorityKey, writeAuthorityKey } from './etcd/etcd-store.ts'
export { etcdUrlBelow, parseEtcdUrl } from './etcd/etcd-url.ts'
export { ReplicaSession, parseSession } from './etcd/replica-session.ts'
export type { GroupObserver } from './grouped-log.ts'
export { LogState, groupOf } from './log-state.ts'
export { type OpenedLog, SILENT, checkNotMoved, fixSettings, openLog } from './open-store.ts'
export { PACKED, packedBody } from './packed-row.ts'
export {
  type Change,
  type ChangesFrom,
  type LogView,
  type RecordLog,
  type Row,
  StateError,
  type StoreContent,
  type StoredRow,
  type Transaction,
  absentState,
  contentOfLog,
} from './record-log.ts'
export {
  AUTHORITY_KEY,
  type AuditRow,
  type AuthorityRow,
  type AwaitedRow,
  type ChangedRanges,
  type ClustersetRow,
  type ContactRow,
  type HandedOut,
  type HeldMember,
  type IssuedCertificate,
  type KnownAuthority,
  MIGRATION_KEY,
  type MemberRow,
  type MigrationRow,
  type Misuse,
  type NextAuthority,
  type PublicKeyRow,
  RESTORE_KEY,
  type RecordRow,
  type RestoreRow,
  SCOPES,
  SETTINGS_KEY,
  type Scope,
  type Scopes,
  type ServiceIpRow,
  type SettingsRow,
  type SupersededCertificate,
  type TokenRow,
  type WaitingRow,
  isLive,
  parseRecordKey,
  storedRecord,
  timeText,
} from './rows.ts'
export {
  readBackup,
  readBackupContent,
  readDatabaseContent,
  unpackBackup,
  writeBackup,
  type BackupContent,
} from './sqlite/sqlite-backup.ts'
export { lockDirectory } from './sqlite/sqlite-file.ts'
export { openSqliteLog } from './sqlite/sqlite-log.ts'
export {
  DATABASE_FILE,
  attempt,
  checkOwnDatabase,
  checkStoreRemembered,
  forgetStore,
  isThere,
  makeStateDir,
  onFile,
  readIfThere,
  readStoreConfig,
  rememberStore,
  writeSafely,
} from './state-directory.ts'
export { type ShadowedRelay, relayFlag, shadowedRelays, statedRelays } from './stated-relays.ts'
export { StoreHealth, StoreProblem } from './store-health.ts'
