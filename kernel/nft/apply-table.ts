/**
 * Keeps one nftables table as planned, in one transaction for each change: replaces the whole table if its fixed part
 * changes, sends only elements otherwise, and repairs what other programs changed. After a refused transaction the
 * kernel still enforces what it had, and the next call replaces the table.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { errorOf, messageOf } from '../../runtime/runtime.ts'
import { type Drift, type DriftReason, isNotFound } from '../kernel.ts'
import { parseElements } from './nft-text.ts'
import type { Nft, NftElement, NftStatement } from './nft-transaction.ts'

/** Elements by map or set name, then by key. The value of a set's element is undefined. */
export type ElementMaps = ReadonlyMap<string, ReadonlyMap<string, string | undefined>>

/** What the statements of a planned table add to maps and sets. Pure. */
export function elementsOf(statements: readonly NftStatement[]): ElementMaps {
  const elements = new Map<string, ReadonlyMap<string, string | undefined>>()
  for (const one of statements) {
    if (one.verb === 'add-elements') elements.set(one.map, new Map(one.elements.map(({ key, value }) => [key, value])))
  }
  return elements
}

/** Element lists of one change. Removals come first, because changing a value means to remove and add its element. */
export interface ElementChange {
  readonly map: string
  readonly remove: readonly string[]
  readonly add: readonly NftElement[]
}

/** The changes that turn one set of elements into the other. Maps that are only in `had` are emptied. Pure. */
export function elementDiff(had: ElementMaps, wanted: ElementMaps): ElementChange[] {
  const changes: ElementChange[] = []
  for (const map of new Set([...had.keys(), ...wanted.keys()])) {
    const [old, desired] = [had.get(map) ?? NO_ELEMENTS, wanted.get(map) ?? NO_ELEMENTS]
    const isIn = (elements: typeof old, key: string, value: string | undefined): boolean =>
      elements.has(key) && elements.get(key) === value
    const remove = [...old].filter(([key, value]) => !isIn(desired, key, value)).map(([key]) => key)
    const add = [...desired].filter(([key, value]) => !isIn(old, key, value)).map(asElement)
    if (remove.length > 0 || add.length > 0) changes.push({ map, remove, add })
  }
  return changes
}

const NO_ELEMENTS: ReadonlyMap<string, string | undefined> = new Map()

function asElement([key, value]: readonly [string, string | undefined]): NftElement {
  return value === undefined ? { key } : { key, value }
}

/** Statements of one transaction. The maps and the chains that the elements name must exist. Pure. */
export function elementStatements(table: string, changes: readonly ElementChange[]): NftStatement[] {
  const removals = changes
    .filter(({ remove }) => remove.length > 0)
    .map(({ map, remove }): NftStatement => {
      return { verb: 'delete-elements', table, map, elements: remove.map((key) => ({ key })) }
    })
  const additions = changes
    .filter(({ add }) => add.length > 0)
    .map(({ map, add }): NftStatement => ({ verb: 'add-elements', table, map, elements: add }))
  return [...removals, ...additions]
}

// Compares what nft lists with what was sent. Pure. Chains, maps, sets and counters have names such as `chain refuse`.

/** The rules of each chain, and 0 for each map, set and counter. Undefined if there is no table. */
type Shape = ReadonlyMap<string, number> | undefined

/** The shape that results from these statements on top of `before`. Plans remove no single part. */
function shapeAfter(statements: readonly NftStatement[], before: Shape): Shape {
  let shape = before === undefined ? undefined : new Map(before)
  for (const statement of statements) {
    if (statement.verb === 'delete-table') shape = undefined
    if (statement.verb === 'add-table') shape ??= new Map<string, number>()
    if (statement.verb === 'add-map') shape?.set(`${statement.type.kind} ${statement.map}`, 0)
    if (statement.verb === 'add-counter') shape?.set(`counter ${statement.counter}`, 0)
    if (statement.verb !== 'add-chain' && statement.verb !== 'add-rule') continue
    const name = `chain ${statement.chain}`
    shape?.set(name, (shape.get(name) ?? 0) + (statement.verb === 'add-rule' ? 1 : 0))
  }
  return shape
}

interface Listing {
  readonly shape: Shape
  /** What each part consists of, in the form that nft prints, with counters at zero. */
  readonly texts: ReadonlyMap<string, string>
  /** Empty if the texts contain the elements. */
  readonly elements: ElementMaps
}

/**
 * Parses the text of `nft list table`. Parts of kinds that no plan has are found too, such as `flags dormant`, which
 * switches the table off. One listing contains everything, which is faster than one for each map.
 */
function parseListing(listing: string | undefined, comparison: TableComparison): Listing {
  const shape = new Map<string, number>()
  const texts = new Map<string, string>()
  const elements = new Map<string, ReadonlyMap<string, string | undefined>>()
  for (const { part, body } of blocks(listing ?? '')) {
    const [kind, name = ''] = part.split(' ')
    const text = body.join('\n')
    const isChain = kind === 'chain'
    shape.set(part, isChain ? body.filter((line) => !line.startsWith('\t\ttype ')).length : 0)
    if (isChain || kind === 'counter') texts.set(part, text.replaceAll(/packets \d+ bytes \d+/g, 'packets 0 bytes 0'))
    else if (comparison === 'elements with the last listing') texts.set(part, text)
    else {
      texts.set(part, text.replace(/\s*\belements = \{[^}]*\}/, ''))
      // What rules have added is no part of a plan.
      if (body.some((line) => /^\s*flags .*\bdynamic\b/.test(line))) continue
      elements.set(name, new Map(parseElements(text).map(({ key, value }) => [key, value])))
    }
  }
  return { shape: listing === undefined ? undefined : shape, texts, elements }
}

interface Block {
  /** For example `chain refuse`, or `flags dormant`, which has no body. */
  readonly part: string
  readonly body: string[]
}

function* blocks(listing: string): Generator<Block> {
  let open: Block | undefined
  for (const line of listing.split('\n')) {
    if (line === '\t}') {
      if (open !== undefined) yield open
      open = undefined
    } else if (open !== undefined) open.body.push(line)
    else if (line.startsWith('\t')) {
      const opens = line.endsWith(' {')
      const block = { part: line.slice(1, opens ? -2 : undefined), body: [] }
      if (opens) open = block
      else yield block
    }
  }
}

/**
 * What other programs changed, as names of parts that are missing, changed or new. Undefined if nothing. nft prints
 * rules in its own form, so texts are compared with earlier listings, and parts that were not listed before by shape.
 */
function differences(
  had: { readonly shape: Shape; readonly texts: ReadonlyMap<string, string> },
  now: Listing,
): { readonly reason: DriftReason; readonly items: readonly string[] } | undefined {
  if (now.shape === undefined) return had.shape && { reason: 'Missing', items: ['the whole table'] }
  const { shape = new Map<string, number>(), texts } = had
  const found = now.shape
  const parts = [...shape.keys()]
  const missing = parts.filter((part) => !found.has(part))
  if (missing.length > 0) return { reason: 'Missing', items: missing }
  const changed = parts.filter(
    (part) => found.get(part) !== shape.get(part) || (texts.has(part) && texts.get(part) !== now.texts.get(part)),
  )
  if (changed.length > 0) return { reason: 'Changed', items: changed }
  const foreign = [...found.keys()].filter((part) => !shape.has(part))
  if (foreign.length > 0) return { reason: 'Foreign', items: foreign }
  return had.shape === undefined ? { reason: 'Foreign', items: ['the table'] } : undefined
}

/**
 * With the plan: for a table with many elements, which is listed at checks only; wrong elements are repaired one by one.
 * With the last listing: each change is followed by a listing, and any difference from it replaces the table.
 */
export type TableComparison = 'elements with the plan' | 'elements with the last listing'

/** The planned table. The functions are called only if needed, because their results may be long. */
export interface PlannedTable {
  /** Identifies everything that a replacement alone can change. */
  readonly fixed: string
  /** Creates the table or replaces it, beginning with `add table` and `delete table`. */
  readonly replacement: () => readonly NftStatement[]
  /** Changes the elements, and adds parts, since the last transaction. */
  readonly delta: () => readonly NftStatement[]
  /** All elements; compared only if `comparison` says so. */
  readonly elements: () => ElementMaps
}

export interface TableApplierInit {
  /** Its family is that of the table. */
  readonly nft: Nft
  readonly table: string
  readonly clock: Pick<Clock, 'monotonic'>
  readonly comparison: TableComparison
}

/** Full: the whole table. */
export interface Transaction {
  readonly kind: 'full' | 'delta'
  readonly statements: readonly NftStatement[]
}

export interface ApplyInit {
  /** Also checks the kernel. */
  readonly looks: boolean
  /** Told of each repair, once. If absent, repairs are not counted. */
  readonly drift?: Pick<Drift, 'repaired'>
  /** Called after each transaction. */
  readonly onSent: (transaction: Transaction) => void
}

interface Known {
  readonly fixed: string
  readonly shape: Shape
  /** As nft listed them at the last look, without those changed since. */
  readonly texts: ReadonlyMap<string, string>
}

export class TableApplier {
  readonly #init: TableApplierInit
  /** Undefined if the state of the kernel is not known, so that the next call replaces the table. */
  #known: Known | undefined
  #isSuspect = false
  /** No table exists. This is checked only once, because no other program creates it. */
  #isGone = false
  #lookedAtMs = -Infinity

  constructor(init: TableApplierInit) {
    this.#init = init
  }

  /** The kernel has accepted the last transaction. */
  get isKnown(): boolean {
    return this.#known !== undefined
  }

  /** When the table was last listed, in monotonic milliseconds. */
  get lookedAtMs(): number {
    return this.#lookedAtMs
  }

  /** The next apply() replaces the table. */
  forget(): void {
    this.#known = undefined
  }

  /**
   * When another program has changed the table, or may have, the next apply() checks it, and `poke` is called. If the
   * kernel sends no notifications, periodic checks alone find these changes. Returns the function that ends this.
   */
  follow(logger: Pick<Logger, 'warn'>, poke: () => void): () => void {
    const { nft, table } = this.#init
    try {
      return nft.onChange(table, () => {
        this.#isSuspect = true
        poke()
      })
    } catch (error) {
      const why = messageOf(error)
      logger.warn('the kernel does not report changes to nftables; they are found at the next check', {
        reason: 'KernelNotFollowed',
        why,
      })
      return () => undefined
    }
  }

  /**
   * Sends what differs, and checks the kernel if asked to or if another program may have changed the table. Throws
   * KernelError: after a refused transaction isKnown is false; after a listing that failed the check remains due.
   */
  async apply(planned: PlannedTable, init: ApplyInit, signal: AbortSignal): Promise<void> {
    if (this.#known?.fixed === planned.fixed) await this.#update(planned, init, signal)
    else if ((await this.#replace(planned, init, signal)) && this.#isCompared('elements with the last listing'))
      await this.#check(await this.#list(signal), planned, init, signal)
  }

  /** For a table whose fixed part stays. */
  async #update(planned: PlannedTable, init: ApplyInit, signal: AbortSignal): Promise<void> {
    const isDue = (): boolean => init.looks || this.#isSuspect
    const delta = async (): Promise<boolean> =>
      this.#send(this.#known, { kind: 'delta', statements: planned.delta() }, init, signal)
    if (this.#isCompared('elements with the plan')) {
      await delta()
      if (isDue()) await this.#check(await this.#list(signal), planned, init, signal)
      return
    }
    if (isDue()) {
      // A listing after a change of a map does not show what other programs had changed in the same map before.
      const found = await this.#list(signal).catch(errorOf)
      if (found instanceof Error) {
        // A table that cannot be listed still gets its changes.
        await delta()
        throw found
      }
      if (await this.#check(found, planned, init, signal)) return
    }
    if (await delta()) await this.#check(await this.#list(signal), planned, init, signal)
  }

  #isCompared(comparison: TableComparison): boolean {
    return this.#init.comparison === comparison
  }

  /** Removes the table if an earlier plan or run left one. Returns true if it did. Throws KernelError. */
  async remove(signal: AbortSignal): Promise<boolean> {
    if (this.#isGone) return false
    this.#known = undefined
    const isRemoved = await removeTable(this.#init.nft, this.#init.table, signal)
    this.#isGone = true
    return isRemoved
  }

  #replace(planned: PlannedTable, init: ApplyInit, signal: AbortSignal): Promise<boolean> {
    this.#isGone = false
    this.#isSuspect = false
    const known: Known = { fixed: planned.fixed, shape: undefined, texts: new Map() }
    return this.#send(known, { kind: 'full', statements: planned.replacement() }, init, signal)
  }

  /** Returns true if there was something to send. */
  async #send(
    before: Known | undefined,
    { kind, statements }: Transaction,
    { onSent }: ApplyInit,
    signal: AbortSignal,
  ): Promise<boolean> {
    if (statements.length === 0 || before === undefined) return false
    try {
      await this.#init.nft.run(statements, signal)
    } catch (error) {
      this.#known = undefined
      throw error
    }
    const touched = new Set(statements.flatMap((one) => ('map' in one ? [`map ${one.map}`, `set ${one.map}`] : [])))
    const texts = new Map([...before.texts].filter(([part]) => !touched.has(part)))
    this.#known = { ...before, shape: shapeAfter(statements, before.shape), texts }
    onSent({ kind, statements })
    return true
  }

  /**
   * Replaces the table if its parts are not as they were sent or listed, and otherwise corrects its elements. Returns
   * true if it replaced the table.
   */
  async #check(found: Listing, planned: PlannedTable, init: ApplyInit, signal: AbortSignal): Promise<boolean> {
    const known = this.#known
    if (known === undefined) return false
    const difference = differences(known, found)
    if (difference !== undefined) {
      init.drift?.repaired('nft-table', difference.reason, difference.items)
      await this.#replace(planned, init, signal)
      if (this.#isCompared('elements with the last listing')) this.#learn(await this.#list(signal))
      return true
    }
    this.#learn(found)
    if (this.#isCompared('elements with the last listing')) return false
    const wanted = planned.elements()
    const repairs = elementDiff(found.elements, wanted).filter(({ map }) => found.elements.has(map))
    if (repairs.length === 0) return false
    const reason = repairs.some(({ add }) => add.length > 0) ? 'Missing' : 'Foreign'
    const maps = repairs.map((repair) => `elements of ${repair.map}`)
    init.drift?.repaired('nft-elements', reason, maps)
    const statements = elementStatements(this.#init.table, repairs)
    await this.#send(this.#known, { kind: 'delta', statements }, init, signal)
    return false
  }

  #learn({ texts }: Listing): void {
    if (this.#known !== undefined) this.#known = { ...this.#known, texts }
  }

  /** Throws KernelError; the check then remains due. */
  async #list(signal: AbortSignal): Promise<Listing> {
    const { nft, table, clock, comparison } = this.#init
    this.#isSuspect = false
    try {
      const listing = await nft.listTable(table, signal)
      this.#lookedAtMs = clock.monotonic()
      return parseListing(listing, comparison)
    } catch (error) {
      this.#isSuspect = true
      throw error
    }
  }
}

/** Removes the table if it exists. Returns true if it did. Throws KernelError. */
export async function removeTable(nft: Nft, table: string, signal: AbortSignal): Promise<boolean> {
  if (!(await nft.tables(table, signal)).includes(table)) return false
  try {
    await nft.run([{ verb: 'delete-table', table }], signal)
    return true
  } catch (error) {
    if (isNotFound(error)) return false
    throw error
  }
}
