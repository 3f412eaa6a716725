/** What a watcher is sent: snapshots, then batches of what it may know and asked for. */
export { WatchHub } from './watch-hub.ts'
