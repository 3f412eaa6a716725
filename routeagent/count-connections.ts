/**
 * Counts once a minute how many connections the pods of this node have with pods of other clusters. These would break
 * if this cluster got global addresses. Each connection of a pod is tracked and counted only on the pod's own node.
 */
import type { ConnectionTable } from '../kernel/nfnetlink/nfnetlink.ts'
import { type Prefix, addressBits, aggregate, ofFamily } from '../model/addresses/addresses.ts'
import { type OpenConnections, isWorthReporting } from '../model/model.ts'
import { type Clock, ReconcileLoop } from '../reconcile/reconcile.ts'
import { messageOf } from '../runtime/runtime.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import { type NodeRoutePlan, clusterValidation } from './routes/routes.ts'
import {
  COUNT_CONNECTIONS_MS,
  type FactsReader,
  LOOP_TIMING,
  type RouteAgentCaches,
  type RouteAgentConfig,
  type RouteAgentMetrics,
  loopDeps,
  readWorld,
  withFacts,
} from './world/world.ts'

/** A set of IPv4 ranges as sorted plain numbers, for fast lookups. Pure. */
export class Ipv4Ranges {
  /** The first and the last address of each range. Ranges do not overlap. */
  readonly #first: readonly number[]
  readonly #last: readonly number[]

  /** Ignores IPv6 prefixes. */
  constructor(prefixes: readonly Prefix[]) {
    const disjoint = aggregate(ofFamily(prefixes, 4))
    const sorted = disjoint.map((prefix) => ({ first: Number(prefix.value), length: prefix.length }))
    sorted.sort((a, b) => a.first - b.first)
    this.#first = sorted.map(({ first }) => first)
    this.#last = sorted.map(({ first, length }) => first + 2 ** (addressBits(4) - length) - 1)
  }

  /** Takes the address as a number, 0 to 2^32 - 1. */
  has(address: number): boolean {
    let [low, high] = [0, this.#first.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#first[middle] ?? 0) <= address) low = middle + 1
      else high = middle
    }
    return low > 0 && address <= (this.#last[low - 1] ?? -1)
  }
}

// Finds the tracked connections between pods of this node and pods of other clusters.

/**
 * A node that tracks more reports "at least" this count, because reading all entries takes time and the exact figure is
 * not needed.
 */
export const MAX_ENTRIES_READ = 200_000

interface CountInit {
  /** Ranges of the pods of this node. */
  readonly pods: readonly Prefix[]
  /** Not all of these ranges are known. */
  readonly podsCut: boolean
  /** Prefixes at which pods of other clusters are reached from here. */
  readonly others: readonly Prefix[]
}

/** Throws KernelError. */
export async function countConnections(
  table: ConnectionTable,
  { pods, podsCut, others }: CountInit,
  signal: AbortSignal,
): Promise<OpenConnections> {
  const [own, remote] = [new Ipv4Ranges(pods), new Ipv4Ranges(others)]
  let count = 0
  const { whole } = await table.scan(
    MAX_ENTRIES_READ,
    ({ client, server }) => {
      if ((own.has(client) && remote.has(server)) || (own.has(server) && remote.has(client))) count += 1
    },
    signal,
  )
  return { count, atLeast: !whole || podsCut }
}

export interface ConnectionLoopDeps {
  readonly caches: RouteAgentCaches
  readonly connections: ConnectionTable
  readonly facts: FactsReader
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
  /** The plan in the kernel, which contains the pod ranges of this node. */
  readonly plan: () => NodeRoutePlan | undefined
  /** Called when a different figure is to be reported. */
  readonly onChange: () => void
}

export class ConnectionLoop {
  readonly #deps: ConnectionLoopDeps
  readonly #config: Pick<RouteAgentConfig, 'node' | 'overlayPort'>
  readonly #loop: ReconcileLoop
  #reported: { readonly figure: OpenConnections | undefined; readonly at: number } | undefined
  #failure: string | undefined

  constructor(deps: ConnectionLoopDeps, config: Pick<RouteAgentConfig, 'node' | 'overlayPort'>) {
    this.#deps = deps
    this.#config = config
    const timing = { ...LOOP_TIMING, resyncMs: COUNT_CONNECTIONS_MS }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'connections'), timing, (signal) => this.#round(signal))
  }

  /** The reported figure, which may differ slightly from the last count. Undefined if it is not known. */
  get reported(): OpenConnections | undefined {
    return this.#reported?.figure
  }

  /** Called after each plan. The first plan starts a count; later counts come when they are due. */
  planned(): void {
    if (this.#reported === undefined) this.#loop.poke()
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { caches, facts, connections, clock, metrics, onChange } = this.#deps
    const plan = this.#deps.plan()
    const reading = readWorld(caches, this.#config)
    if (plan?.ok !== true || !reading.ok) return
    const world = withFacts(reading.world, await facts.read(signal))
    const others = clusterValidation(world).clusters.flatMap(({ prefixes }) => prefixes)
    const init = { pods: plan.podRanges, podsCut: plan.podRangesCut > 0, others }
    const figure = await countConnections(connections, init, signal).catch((error: unknown) =>
      this.#fail(error, signal),
    )
    if (figure !== undefined) {
      this.#failure = undefined
      metrics.openConnections.set(figure.count)
    }
    const at = clock.monotonic()
    const reported = this.#reported
    if (reported !== undefined && !isWorthReporting(reported.figure, figure, at - reported.at)) return
    this.#reported = { figure, at }
    onChange()
  }

  // No other part depends on the figure, so a failure only makes it unknown until the next count.
  #fail(error: unknown, signal: AbortSignal): undefined {
    signal.throwIfAborted()
    const why = messageOf(error)
    if (why !== this.#failure) {
      this.#deps.logger.warn('open connections cannot be counted', { reason: 'ConnectionsNotCounted', why })
    }
    this.#failure = why
  }
}
