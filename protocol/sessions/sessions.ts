/** Publish and watch sessions of a member. */
export { HeldRecords } from './held-records.ts'
export { PublishSession } from './publish-session.ts'
export { WatchSession, type WatchState } from './watch-session.ts'
