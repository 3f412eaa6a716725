/**
 * The interface to nftables, with changes as data. Names and expressions are checked for characters that could end a
 * statement (KernelError EINVAL).
 */

/** The family of all tables of a transaction. The Nft object that runs it determines the family. */
export type NftFamily = 'ip' | 'ip6'

export interface NftBaseChain {
  readonly type: 'filter' | 'nat' | 'route'
  readonly hook: 'prerouting' | 'input' | 'forward' | 'output' | 'postrouting'
  readonly priority: number
}

export interface NftMapType {
  readonly kind: 'map' | 'set'
  /** For example `ipv4_addr . inet_proto . inet_service` or `ipv6_addr . inet_proto . inet_service`. */
  readonly key: string
  /** For example `ipv4_addr . inet_service` or `verdict`; absent for a set. */
  readonly value?: string
  /**
   * Key and value as expressions, if a part of them has no type with a name: `ip daddr . numgen random mod 2`. The kernel
   * then gets these, and `key` and `value` only name the parts.
   */
  readonly typeOf?: { readonly key: string; readonly value?: string }
  /** `dynamic`: rules add elements, which are no part of a plan. */
  readonly flags?: readonly ('interval' | 'timeout' | 'dynamic')[]
  /** Most elements. Absent: no limit. */
  readonly size?: number
}

export interface NftElement {
  /** In the form that nft prints: `245.0.0.7 . tcp . 80`. */
  readonly key: string
  /** In the form that nft prints: `244.1.0.9 . 8080`, `goto pick-2`; absent in a set. */
  readonly value?: string
}

/** An element of a set whose rules count packets: `update @calls { ip saddr counter }`. */
export interface CountedElement {
  /** As NftElement.key. */
  readonly key: string
  readonly packets: number
  readonly bytes: number
}

/** What the rules of a table have counted for elements. */
export interface TableCounts {
  /** By set. Elements without a counter are left out. */
  readonly sets: ReadonlyMap<string, readonly CountedElement[]>
}

/** One statement. It names no family: the Nft that runs it has one. */
export type NftStatement =
  | {
      readonly verb: 'add-table' | 'delete-table' | 'flush-table'
      readonly table: string
      /** Of a new table: the kernel removes it when the process that added it ends (Linux 5.12). */
      readonly owned?: true
    }
  | { readonly verb: 'add-chain'; readonly table: string; readonly chain: string; readonly base?: NftBaseChain }
  | { readonly verb: 'flush-chain' | 'delete-chain'; readonly table: string; readonly chain: string }
  | {
      readonly verb: 'add-rule'
      readonly table: string
      readonly chain: string
      readonly rule: string
      readonly comment?: string
    }
  /** For rules that contain `counter name …`. An existing counter keeps its count. */
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
 * The nftables of this network namespace, for one family of tables; two families need two objects and two transactions.
 * Drivers: nft-command.ts (`nft -f -`, `nft list`), nft-session.ts (`nft -i`), and fake-nft.ts, which interprets
 * transactions and refuses what the kernel refuses. Compliance: test/compliance/nft.ts.
 */
export interface Nft {
  /** The family of all tables that this object changes and lists. */
  readonly family: NftFamily
  /** Runs a transaction, all or nothing. Throws KernelError with the refused text in `operation`. */
  run(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void>
  /** Checks a transaction without applying it: `nft --check`. */
  check(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void>
  /** Returns the names of the tables of this family that start with `prefix`. */
  tables(prefix: string, signal?: AbortSignal): Promise<readonly string[]>
  /** Returns `nft list table FAMILY NAME` without handles and counters. Undefined if the table does not exist. */
  listTable(table: string, signal?: AbortSignal): Promise<string | undefined>
  /** As listTable(), but without the elements of sets and maps. They are not read either. */
  structure(table: string, signal?: AbortSignal): Promise<string | undefined>
  /**
   * Returns the packets that each named counter has counted, by name. Throws KernelError ENOENT if the table does not
   * exist.
   */
  counters(table: string, signal?: AbortSignal): Promise<ReadonlyMap<string, number>>
  /**
   * Returns what these sets of a table have counted. Throws KernelError ENOENT. Other sets are not read, because they may
   * be large; named counters are not either, because nft then reads the elements of all sets of all tables.
   */
  counts(table: string, sets: readonly string[], signal?: AbortSignal): Promise<TableCounts>
  /** Returns the elements of a map or set. Throws KernelError ENOENT. */
  elements(table: string, map: string, signal?: AbortSignal): Promise<readonly NftElement[]>
  /**
   * Calls `listener` (coalesced) when another program changes the table of this family and name, or may have changed
   * it. A run() of this object that only adds or removes elements never causes a call. Returns the function that ends
   * the watch. Throws KernelError if the kernel sends no notifications.
   */
  onChange(table: string, listener: () => void): () => void
}
