/**
 * The nftables of this network namespace. Drivers: nft-command.ts (`nft -f -`, `nft -j list`) and fake-nft.ts,
 * which interprets transactions and refuses what the kernel refuses. Compliance: test/compliance/nft.ts.
 */
import type { NftElement, NftStatement } from './nft-transaction.ts'

export interface Nft {
  /** All or nothing. Throws KernelError; the text that was refused is in `operation`. */
  run(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void>
  /** The same, without effect: `nft --check`. */
  check(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void>
  /** Names of the ip tables whose name starts with `prefix`. */
  tables(prefix: string, signal?: AbortSignal): Promise<readonly string[]>
  /** `nft list table ip NAME` without handles and counters; undefined when there is none. */
  listTable(table: string, signal?: AbortSignal): Promise<string | undefined>
  /** Packets that each named counter has seen, by name. Throws KernelError ENOENT without the table. */
  counters(table: string, signal?: AbortSignal): Promise<ReadonlyMap<string, number>>
  /** Throws KernelError ENOENT. */
  elements(table: string, map: string, signal?: AbortSignal): Promise<readonly NftElement[]>
}
