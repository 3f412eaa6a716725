/** nftables: statements, their text form, the drivers, and the watch for changes. */
export {
  type ApplyInit,
  type ElementChange,
  type ElementMaps,
  type PlannedTable,
  TableApplier,
  elementDiff,
  elementStatements,
  elementsOf,
  removeTable,
} from './apply-table.ts'
export { DroppedPackets } from './dropped-packets.ts'
export { LED_ELSEWHERE, hostMatches, ledElsewhereMatches, openPortMatches, refusingRules } from './host-guard.ts'
export { NftSession } from './nft-session.ts'
export { formatBase, formatMapType, formatNft, formatRule, formatStatement, parseElements } from './nft-text.ts'
export type { TraceLine, TracedPacket } from './parse-trace.ts'
export type { TracedCall } from './plan-trace-table.ts'
export type {
  CountedElement,
  Nft,
  NftBaseChain,
  NftElement,
  NftFamily,
  NftMapType,
  NftStatement,
  TableCounts,
} from './nft-transaction.ts'
export { type PacketTrace, type TraceInit, sweepTraces, withTrace } from './trace-packets.ts'
