/** Connection tracking of a network namespace. */
export type {
  AnswerEnds,
  CallLookup,
  CallState,
  CallsInit,
  ConnectionScan,
  ConnectionTable,
  EntryState,
  FlowEnd,
  FlowTable,
  TrackedConnection,
  TranslatedFlow,
} from './connection-table.ts'
export { Conntrack } from './ctnetlink.ts'
