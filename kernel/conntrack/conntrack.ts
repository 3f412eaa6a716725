/** Connection tracking of a network namespace. */
export type {
  CallState,
  CallsInit,
  ConnectionScan,
  ConnectionTable,
  FlowEnd,
  FlowTable,
  TrackedConnection,
  TranslatedFlow,
} from './connection-table.ts'
export { Conntrack } from './ctnetlink.ts'
