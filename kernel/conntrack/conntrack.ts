/** Connection tracking of a network namespace, read only. */
export type { ConnectionScan, ConnectionTable, TrackedConnection } from './connection-table.ts'
export { Conntrack } from './ctnetlink.ts'
