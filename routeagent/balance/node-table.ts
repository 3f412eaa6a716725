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
import { type AddressFamily, addressFamily } from '../world/world.ts'
import {
  type AccessGroups,
  type CallsPlan,
  type PlannedAccess,
  accessChanges,
  callsChanges,
  fixedByCalls,
  groupNames,
} from '../access/access.ts'
import { type LocalBackends, type TableLayout, elementChanges, layout } from './balance-elements.ts'
import { nodeDropCounts } from '../world/world.ts'
import type { BalancePlanner, PortChange } from './plan-balancing.ts'
import {
  type NodeNftWorld,
  accessStatements,
  desiredElements,
  nodeChange,
  planNodeNft,
  planTable,
} from './plan-node-table.ts'

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
  readonly calls: CallsPlan
  /** What exists for the access plan besides its elements. */
  readonly groups: ReadonlySet<string>
}

/** The planned table. */
export interface WantedTable {
  readonly world: NodeNftWorld
  readonly planner: BalancePlanner
  /** Changes of the planner since the last call. */
  readonly changes: readonly PortChange[]
  /** Its changes are those since the last call too. */
  readonly access: PlannedAccess
}

/**
 * A service whose number of endpoints changes all the time leaves a chain of one rule for each number behind, and one
 * whose callers change all the time those of each group of callers.
 */
const MAX_UNUSED_CHAINS = 4096
/** The most chains of a group of callers. */
const GROUP_CHAINS = 3

export class NodeTable {
  readonly #deps: NodeTableDeps
  readonly #family: AddressFamily
  readonly #dropped: ReturnType<typeof nodeDropCounts>
  readonly #table: TableApplier
  readonly #drift: Drift
  #sent: Sent | undefined
  /** Chains after the last replacement. */
  #chains = 0
  /** Rises when too many chains are of no use any more: the table is then replaced. */
  #generation = 0

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

  /** The addresses of backends on this node. Undefined if there is no table, as far as is known. */
  get localBackends(): ReadonlySet<string> | undefined {
    return this.#table.isKnown ? this.#sent?.localBackends.addresses() : undefined
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

  #planned({ world, planner, changes, access }: WantedTable): PlannedTable {
    const fixed = this.#sent?.world === world ? this.#sent.fixed : this.#fixedOf(world)
    const chains = this.#sent === undefined ? 0 : chainsOf(this.#sent)
    if (chains > 2 * this.#chains + MAX_UNUSED_CHAINS) this.#generation += 1
    return {
      // The end of all egress rules must not leave the chain that refuses the rest. Kept connections need other rules.
      fixed: `${this.#generation}\n${fixedByCalls(access.plan.calls)}\n${fixed}`,
      replacement: () => {
        const { plan: admitted } = access
        const { statements, ...plan } = planTable(world, planner.ports(), admitted)
        this.#sent = { world, fixed, ...plan, calls: admitted.calls, groups: new Set(groupNames(admitted)) }
        this.#chains = chainsOf(this.#sent)
        return statements
      },
      delta: () => this.#delta(world, changes, access),
      elements: () =>
        this.#sent === undefined
          ? new Map()
          : desiredElements(world, planner.ports(), this.#sent.localBackends, access.plan),
    }
  }

  #delta(world: NodeNftWorld, changes: readonly PortChange[], access: PlannedAccess): NftStatement[] {
    const sent = this.#sent
    if (sent === undefined) return []
    const nodes = sent.world === world ? [] : nodeChange(sent.world, world)
    const plans = changes.flatMap(({ after }) => (after === undefined ? [] : [after]))
    const chains = layout(plans, sent.layout, this.#family)
    const { calls } = access.plan
    const isSame = calls === sent.calls && access.changes.groups.length === 0
    const changed: AccessGroups = {
      groups: access.changes.groups.flatMap(({ key, after }) => (after === undefined ? [] : [[key, after] as const])),
      calls,
    }
    const groups = isSame ? [] : accessStatements(world, changed, sent.groups)
    const names = groups.length === 0 ? sent.groups : new Set([...sent.groups, ...groupNames(changed)])
    const admitted = [...accessChanges(access.changes), ...(isSame ? [] : callsChanges(sent.calls, calls))]
    this.#sent = { ...sent, world, layout: chains.result, calls, groups: names }
    if ([changes, nodes, admitted, groups].every(({ length }) => length === 0)) return []
    const elements: ElementChange[] = [
      ...nodes,
      ...admitted,
      ...elementChanges(changes),
      sent.localBackends.apply(changes),
    ]
    return [...chains.statements, ...groups, ...elementStatements(NFT_TABLE_NODE, elements)]
  }

  // The pod networks of the node decide which backends are local, even if no rule names these networks.
  #fixedOf(world: NodeNftWorld): string {
    return `${world.localCidrs.join(' ')}\n${formatNft(planNodeNft(world), this.#family.nft)}`
  }
}

function chainsOf({ layout: { picks }, groups }: Pick<Sent, 'layout' | 'groups'>): number {
  return picks.size + GROUP_CHAINS * groups.size
}
