/** Keeps table sealane_node of one family as planned. Only the elements of services that changed are sent. */
import { Drift } from '../../kernel/kernel.ts'
import {
  type ApplyInit,
  type ElementChange,
  type Nft,
  type NftStatement,
  type PlannedTable,
  TableApplier,
  elementStatements,
  formatNft,
} from '../../kernel/nft/nft.ts'
import { NFT_TABLE_NODE } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { RouteAgentMetrics } from '../world/world.ts'
import { type AddressFamily, addressFamily } from './address-family.ts'
import { type LocalBackends, type TableLayout, elementChanges, layout } from './balance-elements.ts'
import { nodeDropCounts } from './drop-counts.ts'
import type { BalancePlanner, PortChange } from './plan-balancing.ts'
import { type NodeNftWorld, desiredElements, nodeChange, planNodeNft, planTable } from './plan-node-table.ts'

export interface NodeTableDeps {
  /** Its family is that of the table. */
  readonly nft: Nft
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
}

/** What was sent last. */
interface Sent {
  readonly world: NodeNftWorld
  readonly fixed: string
  readonly localBackends: LocalBackends
  readonly layout: TableLayout
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
  readonly #table: TableApplier
  readonly #drift: Drift
  #sent: Sent | undefined

  constructor(deps: NodeTableDeps) {
    const { nft, clock, logger, metrics } = deps
    this.#deps = deps
    this.#family = addressFamily(nft.family === 'ip' ? 4 : 6)
    this.#dropped = nodeDropCounts(metrics)
    this.#table = new TableApplier({ nft, clock, table: NFT_TABLE_NODE, comparison: 'elements with the plan' })
    this.#drift = new Drift({ clock, logger, repairs: metrics.driftRepairs })
  }

  /** The world from which the existing table was made. Undefined if there is no table, as far as is known. */
  get world(): NodeNftWorld | undefined {
    return this.#table.isKnown ? this.#sent?.world : undefined
  }

  /** As TableApplier.follow(). */
  follow(poke: () => void): () => void {
    return this.#table.follow(this.#deps.logger, poke)
  }

  /**
   * Sends what differs. `looks`: also checks the kernel. Throws KernelError; the state of the table is then unknown.
   */
  async apply(wanted: WantedTable, looks: boolean, signal: AbortSignal): Promise<void> {
    const { metrics, logger, nft } = this.#deps
    const table = this.#table
    const lookedAtMs = table.lookedAtMs
    const onSent: ApplyInit['onSent'] = ({ kind }) => {
      metrics.transactions.inc({ kind })
      if (kind === 'full') logger.info('table replaced', { ports: wanted.planner.ports().size })
    }
    try {
      await table.apply(this.#planned(wanted), { looks, drift: this.#drift, onSent }, signal)
      if (table.lookedAtMs !== lookedAtMs) await this.#dropped.look([nft], signal)
    } catch (error) {
      table.forget()
      throw error
    }
  }

  /** Throws KernelError. */
  async remove(signal: AbortSignal): Promise<void> {
    await this.#table.remove(signal)
  }

  #planned({ world, planner, changes }: WantedTable): PlannedTable {
    const fixed = this.#sent?.world === world ? this.#sent.fixed : this.#fixedOf(world)
    return {
      fixed,
      replacement: () => {
        const { statements, ...plan } = planTable(world, planner.ports())
        this.#sent = { world, fixed, ...plan }
        return statements
      },
      delta: () => this.#delta(world, changes),
      elements: () =>
        this.#sent === undefined ? new Map() : desiredElements(world, planner.ports(), this.#sent.localBackends),
    }
  }

  #delta(world: NodeNftWorld, changes: readonly PortChange[]): NftStatement[] {
    const sent = this.#sent
    if (sent === undefined) return []
    const nodes = nodeChange(sent.world, world)
    const plans = changes.flatMap(({ after }) => (after === undefined ? [] : [after]))
    const chains = layout(plans, sent.layout, this.#family)
    this.#sent = { ...sent, world, layout: chains.result }
    if (changes.length === 0 && nodes.length === 0) return []
    const elements: ElementChange[] = [...nodes, ...elementChanges(changes), sent.localBackends.apply(changes)]
    return [...chains.statements, ...elementStatements(NFT_TABLE_NODE, elements)]
  }

  // The pod networks of the node decide which backends are local, even if no rule names these networks.
  #fixedOf(world: NodeNftWorld): string {
    return `${world.localCidrs.join(' ')}\n${formatNft(planNodeNft(world), this.#family.nft)}`
  }
}
