/**
 * The nftables of this network namespace, one family of tables: two families are two objects and two transactions.
 * Drivers: nft-command.ts (`nft -f -`, `nft -j list`) and fake-nft.ts,
 * which interprets transactions and refuses what the kernel refuses. Compliance: test/compliance/nft.ts.
 */
import type { NftElement, NftFamily, NftStatement } from './nft-transaction.ts'

export interface Nft {
  /** Of all tables that it makes, changes and lists. */
  readonly family: NftFamily
  /** All or nothing. Throws KernelError; the text that was refused is in `operation`. */
  run(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void>
  /** The same, without effect: `nft --check`. */
  check(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void>
  /** Names of the tables (of this family) whose name starts with `prefix`. */
  tables(prefix: string, signal?: AbortSignal): Promise<readonly string[]>
  /** `nft list table FAMILY NAME` without handles and counters; undefined when there is none. */
  listTable(table: string, signal?: AbortSignal): Promise<string | undefined>
  /** Packets that each named counter has seen, by name. Throws KernelError ENOENT without the table. */
  counters(table: string, signal?: AbortSignal): Promise<ReadonlyMap<string, number>>
  /** Throws KernelError ENOENT. */
  elements(table: string, map: string, signal?: AbortSignal): Promise<readonly NftElement[]>
  /**
   * Calls back (coalesced) when somebody else changes a table of this family with this name, or may have: never for a
   * run() of this object alone that only adds or takes elements. Gives the function that ends it. Throws KernelError
   * where the kernel sends no notifications.
   */
  onChange(table: string, listener: () => void): () => void
}
