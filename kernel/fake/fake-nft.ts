/**
 * nftables in memory. It applies transactions as the kernel does, all or nothing, and refuses what the kernel refuses:
 * missing tables, chains, maps and jump targets (ENOENT), an element with another value and overlapping intervals
 * (EEXIST), removal of chains and maps in use (EBUSY), a jump to a base chain (EOPNOTSUPP). Rules are kept as text.
 */
import { KernelError } from '../kernel.ts'
import {
  type CountedElement,
  type Nft,
  type NftElement,
  type NftFamily,
  type NftStatement,
  type TableCounts,
  formatStatement,
} from '../nft/nft.ts'
import { type FakeNftTable, printTable } from './fake-nft-table.ts'
import { applyStatement, type Undo } from './fake-nft-apply.ts'

export interface FakeNftInit {
  /** Default ip. */
  readonly family?: NftFamily
}

export class FakeNft implements Nft {
  readonly family: NftFamily
  readonly #tables = new Map<string, FakeNftTable>()
  #nextFailure: KernelError | undefined
  readonly #listeners = new Set<{ readonly table: string; readonly listener: () => void }>()
  /** Accepted transactions in order, so that tests can check how much was changed. */
  readonly accepted: (readonly NftStatement[])[] = []

  constructor(init: FakeNftInit = {}) {
    this.family = init.family ?? 'ip'
  }

  run(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void> {
    return attempt(signal, () => {
      const failure = this.#nextFailure
      this.#nextFailure = undefined
      if (failure !== undefined) throw failure
      this.#apply(statements)
      this.accepted.push(statements)
    })
  }

  check(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void> {
    return attempt(signal, () => rollBack(this.#apply(statements)))
  }

  tables(prefix: string, signal?: AbortSignal): Promise<readonly string[]> {
    return attempt(signal, () => [...this.#tables.keys()].filter((name) => name.startsWith(prefix)).sort())
  }

  listTable(table: string, signal?: AbortSignal): Promise<string | undefined> {
    return attempt(signal, () => {
      const found = this.#tables.get(table)
      return found === undefined ? undefined : printTable(found, this.family)
    })
  }

  structure(table: string, signal?: AbortSignal): Promise<string | undefined> {
    return attempt(signal, () => {
      const found = this.#tables.get(table)
      if (found === undefined) return undefined
      const maps = new Map([...found.maps].map(([name, map]) => [name, { ...map, elements: new Map() }]))
      return printTable({ ...found, maps }, this.family)
    })
  }

  counters(table: string, signal?: AbortSignal): Promise<ReadonlyMap<string, number>> {
    return attempt(signal, () => new Map(this.#need(table, 'counters').counters))
  }

  counts(table: string, sets: readonly string[], signal?: AbortSignal): Promise<TableCounts> {
    return attempt(signal, () => {
      const { maps } = this.#need(table, 'counts')
      const read = sets.map((name) => {
        const map = maps.get(name)
        if (map?.type.kind !== 'set')
          throw new KernelError('ENOENT', `nft list set ${this.family} ${table} ${name}`, 'no such set')
        return [name, [...map.counted].map(([key, of]) => ({ key, ...of }))] as const
      })
      return { sets: new Map(read) }
    })
  }

  /** Counts as a rule does that updates an element: `update @set { … counter }`. */
  countElement(table: string, set: string, { key, packets, bytes }: CountedElement): void {
    const map = this.#need(table, 'set').maps.get(set)
    if (map === undefined) throw new KernelError('ENOENT', `nft list set ${this.family} ${table} ${set}`, 'no such set')
    const before = map.counted.get(key) ?? { packets: 0, bytes: 0 }
    map.counted.set(key, { packets: before.packets + packets, bytes: before.bytes + bytes })
  }

  elements(table: string, map: string, signal?: AbortSignal): Promise<readonly NftElement[]> {
    return attempt(signal, () => {
      const found = this.#tables.get(table)?.maps.get(map)
      if (found === undefined) {
        throw new KernelError('ENOENT', `nft list map ${this.family} ${table} ${map}`, 'no such table or map')
      }
      return [...found.elements]
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([key, value]): NftElement => (value === undefined ? { key } : { key, value }))
    })
  }

  /** Adds packets to a named counter. Throws KernelError ENOENT if it does not exist. */
  count(table: string, counter: string, packets: number): void {
    const { counters } = this.#need(table, 'counters')
    const before = counters.get(counter)
    if (before === undefined)
      throw new KernelError('ENOENT', `nft list counter ${this.family} ${table} ${counter}`, 'no such counter')
    counters.set(counter, before + packets)
  }

  onChange(table: string, listener: () => void): () => void {
    const entry = { table, listener }
    this.#listeners.add(entry)
    return () => this.#listeners.delete(entry)
  }

  /** Applies statements as another program would, and calls the listeners of the changed tables. */
  async interfere(statements: readonly NftStatement[]): Promise<void> {
    this.#apply(statements)
    await Promise.resolve()
    const touched = new Set(statements.map(({ table }) => table))
    for (const { table, listener } of [...this.#listeners]) if (touched.has(table)) listener()
  }

  /** Makes the next run() throw this error. */
  failNext(error: KernelError): void {
    this.#nextFailure = error
  }

  /** Returns the contents of one table, for the packet tracer. */
  table(name: string): FakeNftTable | undefined {
    return this.#tables.get(name)
  }

  tableNames(): readonly string[] {
    return [...this.#tables.keys()].sort()
  }

  /** Returns all tables, sorted, as nft lists them. */
  toString(): string {
    return [...this.#tables.values()]
      .sort((a, b) => (a.name < b.name ? -1 : 1))
      .map((table) => printTable(table, this.family))
      .join('\n')
  }

  #need(table: string, what: string): FakeNftTable {
    const found = this.#tables.get(table)
    if (found === undefined)
      throw new KernelError('ENOENT', `nft list ${what} table ${this.family} ${table}`, 'no such table')
    return found
  }

  #apply(statements: readonly NftStatement[]): Undo[] {
    const undo: Undo[] = []
    try {
      for (const statement of statements) {
        formatStatement(statement, this.family)
        applyStatement(this.#tables, statement, undo, this.family)
      }
    } catch (error) {
      rollBack(undo)
      throw error
    }
    return undo
  }
}

function rollBack(undo: readonly Undo[]): void {
  for (let i = undo.length - 1; i >= 0; i--) undo[i]?.()
}

// Promises settle later, as those of the real driver do. An aborted signal rejects before any change.
async function attempt<T>(signal: AbortSignal | undefined, action: () => T): Promise<T> {
  await Promise.resolve()
  if (signal?.aborted === true) throw new KernelError('EINTR', 'nft', 'stopped before it began')
  return action()
}
