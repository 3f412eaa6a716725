/**
 * Table sealane_node of one family, as far as we know what the kernel has of it: replaced, changed, looked at, removed.
 */
import { isNotFound } from '../../kernel/errors.ts'
import { Drift } from '../../kernel/drift.ts'
import { formatNft } from '../../kernel/nft/format-nft.ts'
import type { Nft } from '../../kernel/nft/nft.ts'
import type { NftStatement } from '../../kernel/nft/nft-transaction.ts'
import { NFT_TABLE_NODE } from '../../model/kernel-ids.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { type AddressFamily, addressFamily } from '../address-family.ts'
import { nodeDropCounts } from '../drop-counts.ts'
import type { RouteAgentMetrics } from '../metrics.ts'
import { type ElementChange, type TableLayout, elementChanges, elementStatements, layout } from './balance-elements.ts'
import {
  type TableShape,
  differences,
  elementRepair,
  parseListing,
  sameShape,
  sameTexts,
  shapeOf,
} from './check-table.ts'
import type { LocalBackends } from './local-backends.ts'
import type { BalancePlanner, PortChange } from './plan-balancing.ts'
import { type NodeNftWorld, planNodeNft } from './plan-node-nft.ts'
import { desiredElements, nodeChange, planTable } from './plan-table.ts'

export interface NodeTableDeps {
  /** Its family is that of the table. */
  readonly nft: Nft
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
}

/** What the kernel has, as far as we know. */
interface Applied {
  world: NodeNftWorld
  /** What the fixed part follows from: when it changes, the table is made anew. */
  readonly context: string
  readonly localBackends: LocalBackends
  layout: TableLayout
  shape: TableShape
  /** Chains as nft listed them at the last look; none before the first. */
  texts: ReadonlyMap<string, string>
}

/** What the table is to be. */
export interface WantedTable {
  readonly world: NodeNftWorld
  readonly planner: BalancePlanner
  /** Those of the planner since the last call. */
  readonly changes: readonly PortChange[]
}

export class NodeTable {
  readonly #deps: NodeTableDeps
  readonly #family: AddressFamily
  readonly #dropped: ReturnType<typeof nodeDropCounts>
  readonly #drift: Drift
  /** Undefined: not known what the kernel has, so the next call replaces the table. */
  #applied: Applied | undefined

  constructor(deps: NodeTableDeps) {
    this.#deps = deps
    this.#family = addressFamily(deps.nft.family === 'ip' ? 4 : 6)
    this.#dropped = nodeDropCounts(deps.metrics)
    this.#drift = new Drift({ ...deps, repairs: deps.metrics.driftRepairs })
  }

  /** What the table that is there was made from; undefined: there is none, as far as is known. */
  get world(): NodeNftWorld | undefined {
    return this.#applied?.world
  }

  /** Sends what differs. `looks`: at the kernel too. Throws KernelError; then nothing is known of the table. */
  async bring({ world, planner, changes }: WantedTable, looks: boolean, signal: AbortSignal): Promise<void> {
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

  /**
   * Chains or maps that are not as they were sent: throws, so that the table is replaced. Elements: sets them right.
   */
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

  // Which backends are local follows from the node's pod networks, also where no rule names them.
  #contextOf(world: NodeNftWorld): string {
    return `${world.localCidrs.join(' ')}\n${formatNft(planNodeNft(world), this.#family.nft)}`
  }
}

/** Fine where there is none: nothing is sent then. Throws KernelError. */
export async function removeNodeTable(nft: Nft, signal: AbortSignal): Promise<void> {
  if (!(await nft.tables(NFT_TABLE_NODE, signal)).includes(NFT_TABLE_NODE)) return
  try {
    await nft.run([{ verb: 'delete-table', table: NFT_TABLE_NODE }], signal)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}
