/** Table sealane_node of one family and its known state in the kernel: replaces, changes, checks and removes it. */
import { Drift, type DriftReason, isNotFound } from '../../kernel/kernel.ts'
import { type Nft, type NftElement, type NftStatement, formatNft, parseElements } from '../../kernel/nft/nft.ts'
import { NFT_TABLE_NODE } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { RouteAgentMetrics } from '../world/world.ts'
import { type AddressFamily, addressFamily } from './address-family.ts'
import {
  type ElementChange,
  type LocalBackends,
  type TableLayout,
  elementChanges,
  elementStatements,
  layout,
} from './balance-elements.ts'
import { nodeDropCounts } from './drop-counts.ts'
import type { BalancePlanner, PortChange } from './plan-balancing.ts'
import { type NodeNftWorld, desiredElements, nodeChange, planNodeNft, planTable } from './plan-node-table.ts'

// Compares what nft lists with what was sent, to find changes by other programs. Pure.

/** Names of the maps and sets, and how many rules each chain has. */
interface TableShape {
  readonly maps: ReadonlySet<string>
  readonly rules: ReadonlyMap<string, number>
}

/** The shape that results from these statements, in an empty table or on top of `before`. */
function shapeOf(statements: readonly NftStatement[], before?: TableShape): TableShape {
  const maps = new Set(before?.maps)
  const rules = new Map(before?.rules)
  for (const statement of statements) {
    if (statement.verb === 'add-map') maps.add(statement.map)
    if (statement.verb === 'add-chain') rules.set(statement.chain, rules.get(statement.chain) ?? 0)
    if (statement.verb === 'add-rule') rules.set(statement.chain, (rules.get(statement.chain) ?? 0) + 1)
  }
  return { maps, rules }
}

interface TableListing {
  readonly shape: TableShape
  /** The hook and rules of each chain by name, in the form that nft prints, with counters at zero. */
  readonly texts: ReadonlyMap<string, string>
  /** Elements of each map or set, by name. */
  readonly elements: ReadonlyMap<string, readonly NftElement[]>
}

/** Parses the text of `nft list table`. One listing contains everything, which is faster than one for each map. */
function parseListing(listing: string): TableListing {
  const maps = new Set<string>()
  const rules = new Map<string, number>()
  const texts = new Map<string, string>()
  const elements = new Map<string, readonly NftElement[]>()
  for (const { kind, name, body } of blocks(listing)) {
    if (kind === 'chain') {
      rules.set(name, body.filter((line) => !line.startsWith('\t\ttype ')).length)
      texts.set(name, body.join('\n').replaceAll(/packets \d+ bytes \d+/g, 'packets 0 bytes 0'))
    } else {
      maps.add(name)
      elements.set(name, parseElements(body.join('\n')))
    }
  }
  return { shape: { maps, rules }, texts, elements }
}

interface Block {
  readonly kind: string
  readonly name: string
  readonly body: readonly string[]
}

function* blocks(listing: string): Generator<Block> {
  let open: { kind: string; name: string; body: string[] } | undefined
  for (const line of listing.split('\n')) {
    const head = open === undefined ? /^\t(map|set|chain) (\S+) \{$/.exec(line) : null
    if (head !== null) open = { kind: head[1] ?? '', name: head[2] ?? '', body: [] }
    else if (line === '\t}') {
      if (open !== undefined) yield open
      open = undefined
    } else open?.body.push(line)
  }
}

function sameShape(a: TableShape, b: TableShape): boolean {
  return (
    a.maps.size === b.maps.size &&
    a.rules.size === b.rules.size &&
    [...a.maps].every((map) => b.maps.has(map)) &&
    [...a.rules].every(([chain, count]) => b.rules.get(chain) === count)
  )
}

/**
 * Whether the chains that were listed before have the same text. nft prints rules in its own form, so only its listings
 * can be compared.
 */
function sameTexts(before: ReadonlyMap<string, string>, now: ReadonlyMap<string, string>): boolean {
  return [...before].every(([chain, text]) => now.get(chain) === text)
}

/** Most differences that are named. */
const MAX_DIFFERENCES = 8

/** What other programs changed in a table, as text: chains and maps that are missing, changed or new. */
function differences(
  had: { readonly shape: TableShape; readonly texts: ReadonlyMap<string, string> },
  found: TableListing | undefined,
): { readonly reason: DriftReason; readonly items: readonly string[] } {
  if (found === undefined) return { reason: 'Missing', items: ['the whole table'] }
  const { shape, texts } = had
  const chains = [...shape.rules.keys()]
  const missing = [
    ...chains.filter((chain) => !found.shape.rules.has(chain)).map((name) => `chain ${name}`),
    ...[...shape.maps].filter((map) => !found.shape.maps.has(map)).map((name) => `map ${name}`),
  ]
  if (missing.length > 0) return { reason: 'Missing', items: missing.slice(0, MAX_DIFFERENCES) }
  const changed = chains.filter(
    (chain) =>
      found.shape.rules.get(chain) !== shape.rules.get(chain) ||
      (texts.has(chain) && texts.get(chain) !== found.texts.get(chain)),
  )
  const items = changed.map((name) => `chain ${name}`)
  if (items.length > 0) return { reason: 'Changed', items: items.slice(0, MAX_DIFFERENCES) }
  const foreign = [
    ...[...found.shape.rules.keys()].filter((name) => !shape.rules.has(name)).map((name) => `chain ${name}`),
    ...[...found.shape.maps].filter((name) => !shape.maps.has(name)).map((name) => `map ${name}`),
  ]
  return { reason: 'Foreign', items: foreign.slice(0, MAX_DIFFERENCES) }
}

/** The changes that one map needs. Undefined if it is as planned. */
function elementRepair(
  map: string,
  desired: ReadonlyMap<string, string | undefined>,
  observed: readonly NftElement[],
): ElementChange | undefined {
  const remove: string[] = []
  const right = new Set<string>()
  for (const { key, value } of observed) {
    if (desired.has(key) && desired.get(key) === value) right.add(key)
    else remove.push(key)
  }
  const add: NftElement[] = []
  for (const [key, value] of desired) {
    if (!right.has(key)) add.push(value === undefined ? { key } : { key, value })
  }
  return remove.length === 0 && add.length === 0 ? undefined : { map, remove, add }
}

export interface NodeTableDeps {
  /** Its family is that of the table. */
  readonly nft: Nft
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
}

/** The known state of the kernel. */
interface Applied {
  world: NodeNftWorld
  /** What the fixed part depends on. If it changes, the table is replaced. */
  readonly context: string
  readonly localBackends: LocalBackends
  layout: TableLayout
  shape: TableShape
  /** Chains as nft listed them at the last check. Empty before the first. */
  texts: ReadonlyMap<string, string>
}

/** The planned table. */
export interface WantedTable {
  readonly world: NodeNftWorld
  readonly planner: BalancePlanner
  /** Changes of the planner since the last call. */
  readonly changes: readonly PortChange[]
}

export class NodeTable {
  readonly #deps: NodeTableDeps
  readonly #family: AddressFamily
  readonly #dropped: ReturnType<typeof nodeDropCounts>
  readonly #drift: Drift
  /** Undefined if the state of the kernel is not known, so that the next call replaces the table. */
  #applied: Applied | undefined

  constructor(deps: NodeTableDeps) {
    this.#deps = deps
    this.#family = addressFamily(deps.nft.family === 'ip' ? 4 : 6)
    this.#dropped = nodeDropCounts(deps.metrics)
    this.#drift = new Drift({ ...deps, repairs: deps.metrics.driftRepairs })
  }

  /** The world from which the existing table was made. Undefined if there is no table, as far as is known. */
  get world(): NodeNftWorld | undefined {
    return this.#applied?.world
  }

  /**
   * Sends what differs. `looks`: also checks the kernel. Throws KernelError; the state of the table is then unknown.
   */
  async apply({ world, planner, changes }: WantedTable, looks: boolean, signal: AbortSignal): Promise<void> {
    const applied = this.#applied
    try {
      if (applied === undefined || !this.#isStillFixed(applied, world)) {
        await this.#replaceTable(world, planner, signal)
        return
      }
      await this.#applyChanges(applied, world, changes, signal)
      if (looks) await this.#repairDrift(applied, planner, signal)
    } catch (error) {
      this.#applied = undefined
      throw error
    }
  }

  /** Throws KernelError. */
  async remove(signal: AbortSignal): Promise<void> {
    this.#applied = undefined
    await removeNodeTable(this.#deps.nft, signal)
  }

  #isStillFixed(applied: Applied, world: NodeNftWorld): boolean {
    return applied.world === world || applied.context === this.#contextOf(world)
  }

  async #replaceTable(world: NodeNftWorld, planner: BalancePlanner, signal: AbortSignal): Promise<void> {
    const plan = planTable(world, planner.ports())
    await this.#send('full', plan.statements, signal)
    this.#applied = {
      world,
      context: this.#contextOf(world),
      localBackends: plan.localBackends,
      layout: plan.layout,
      shape: shapeOf(plan.statements),
      texts: new Map(),
    }
    this.#deps.logger.info('table replaced', { ports: planner.ports().size })
  }

  async #applyChanges(
    applied: Applied,
    world: NodeNftWorld,
    changes: readonly PortChange[],
    signal: AbortSignal,
  ): Promise<void> {
    const nodes = nodeChange(applied.world, world)
    applied.world = world
    if (changes.length === 0 && nodes.length === 0) return
    const plans = changes.flatMap(({ after }) => (after === undefined ? [] : [after]))
    const chains = layout(plans, applied.layout, this.#family)
    const elements: ElementChange[] = [...nodes, ...elementChanges(changes), applied.localBackends.apply(changes)]
    await this.#send('delta', [...chains.statements, ...elementStatements(elements)], signal)
    applied.layout = chains.result
    if (chains.statements.length > 0) applied.shape = shapeOf(chains.statements, applied.shape)
  }

  /** Replaces the table if its chains or maps are not as they were sent, and otherwise corrects its elements. */
  async #repairDrift(applied: Applied, planner: BalancePlanner, signal: AbortSignal): Promise<void> {
    const listing = await this.#deps.nft.listTable(NFT_TABLE_NODE, signal)
    const found = listing === undefined ? undefined : parseListing(listing)
    if (found === undefined || !sameShape(found.shape, applied.shape) || !sameTexts(applied.texts, found.texts)) {
      const { reason, items } = differences(applied, found)
      this.#drift.repaired('nft-table', reason, items)
      return this.#replaceTable(applied.world, planner, signal)
    }
    applied.texts = found.texts
    await this.#dropped.look([this.#deps.nft], signal)
    const repairs: ElementChange[] = []
    const all = desiredElements(applied.world, planner.ports(), applied.localBackends)
    for (const [map, observed] of found.elements) {
      const repair = elementRepair(map, all.get(map) ?? new Map<string, undefined>(), observed)
      if (repair !== undefined) repairs.push(repair)
    }
    if (repairs.length === 0) return
    const reason = repairs.some(({ add }) => add.length > 0) ? 'Missing' : 'Foreign'
    const maps = repairs.map((repair) => `elements of ${repair.map}`)
    this.#drift.repaired('nft-elements', reason, maps)
    await this.#send('delta', elementStatements(repairs), signal)
  }

  async #send(kind: 'full' | 'delta', statements: readonly NftStatement[], signal: AbortSignal): Promise<void> {
    if (statements.length === 0) return
    await this.#deps.nft.run(statements, signal)
    this.#deps.metrics.transactions.inc({ kind })
  }

  // The pod networks of the node decide which backends are local, even if no rule names these networks.
  #contextOf(world: NodeNftWorld): string {
    return `${world.localCidrs.join(' ')}\n${formatNft(planNodeNft(world), this.#family.nft)}`
  }
}

/** Does nothing if there is no table. Throws KernelError. */
export async function removeNodeTable(nft: Nft, signal: AbortSignal): Promise<void> {
  if (!(await nft.tables(NFT_TABLE_NODE, signal)).includes(NFT_TABLE_NODE)) return
  try {
    await nft.run([{ verb: 'delete-table', table: NFT_TABLE_NODE }], signal)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}
