/**
 * nftables changes as data. A transaction prints exactly what `nft -f -` gets; nothing else is ever sent.
 * Names and expressions are checked for characters that could end a statement: KernelError EINVAL.
 */

/** Of a table: a transaction is about tables of one family, that of the Nft it is given to. */
export type NftFamily = 'ip' | 'ip6'

export interface NftBaseChain {
  readonly type: 'filter' | 'nat' | 'route'
  readonly hook: 'prerouting' | 'input' | 'forward' | 'output' | 'postrouting'
  readonly priority: number
}

export interface NftMapType {
  readonly kind: 'map' | 'set'
  /** `ipv4_addr . inet_proto . inet_service`, `ipv6_addr . inet_proto . inet_service` */
  readonly key: string
  /** `ipv4_addr . inet_service` or `verdict`; absent for a set. */
  readonly value?: string
  readonly flags?: readonly ('interval' | 'timeout' | 'dynamic')[]
}

export interface NftElement {
  /** As nft prints it: `245.0.0.7 . tcp . 80`. */
  readonly key: string
  /** As nft prints it: `244.1.0.9 . 8080`, `goto pick-2`; absent in a set. */
  readonly value?: string
}

/** One statement. It says nothing of a family: the Nft that runs it has one. */
export type NftStatement =
  | { readonly verb: 'add-table' | 'delete-table' | 'flush-table'; readonly table: string }
  | { readonly verb: 'add-chain'; readonly table: string; readonly chain: string; readonly base?: NftBaseChain }
  | { readonly verb: 'flush-chain' | 'delete-chain'; readonly table: string; readonly chain: string }
  | {
      readonly verb: 'add-rule'
      readonly table: string
      readonly chain: string
      readonly rule: string
      readonly comment?: string
    }
  /** For rules that say `counter name …`. One that is there already is kept with what it has counted. */
  | { readonly verb: 'add-counter'; readonly table: string; readonly counter: string }
  | { readonly verb: 'add-map'; readonly table: string; readonly map: string; readonly type: NftMapType }
  | {
      readonly verb: 'flush-map' | 'delete-map'
      readonly table: string
      readonly map: string
      readonly kind: 'map' | 'set'
    }
  | {
      readonly verb: 'add-elements' | 'delete-elements'
      readonly table: string
      readonly map: string
      readonly elements: readonly NftElement[]
    }

/**
 * The nftables of this network namespace, one family of tables: two families are two objects and two transactions.
 * Drivers: nft-command.ts (`nft -f -`, `nft -j list`) and fake-nft.ts,
 * which interprets transactions and refuses what the kernel refuses. Compliance: test/compliance/nft.ts.
 */
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
