/** Backup, restore, verification and migration of a store. */
export { backupBroker } from './backup.ts'
export { type Migrated, cancelMigration, migrateStore } from './migration.ts'
export { listedClusterset, openPlace } from './open-location.ts'
export { type Restored, acceptOlder, finishRestore, stageRestore } from './restore.ts'
export { StateMark, checkDatabaseThere, checkMark } from './state-mark.ts'
export type { StorePlace } from './store-location.ts'
export { verifyBackup, verifyState } from './verify-store.ts'
