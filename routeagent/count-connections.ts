/**
 * Counts once a minute how many connections pods of this node have with pods of other clusters: what would break if
 * this cluster got global addresses. Each connection of a pod is tracked on the pod's own node, and counted there
 * alone.
 */
import type { ConnectionTable } from '../kernel/conntrack/conntrack.ts'
import { type Prefix, addressBits, aggregate, ofFamily } from '../model/addresses/addresses.ts'
import { type OpenConnections, isWorthReporting } from '../model/model.ts'
import { type Clock, ReconcileLoop } from '../reconcile/reconcile.ts'
import { messageOf } from '../runtime/runtime.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import { type NodeRoutePlan, clusterValidation } from './routes/routes.ts'
import {
  COUNT_CONNECTIONS_MS,
  type FactsReader,
  LOOP_PACE,
  type RouteAgentCaches,
  type RouteAgentConfig,
  type RouteAgentMetrics,
  loopDeps,
  readWorld,
  withFacts,
} from './world/world.ts'

/** Many IPv4 addresses, looked up many times: as plain numbers, in the order of the addresses. Pure. */
export class Ipv4Ranges {
  /** Of each range, none of which overlaps another: the first and the last address. */
  readonly #first: readonly number[]
  readonly #last: readonly number[]

  /** IPv6 prefixes are passed over. */
  constructor(prefixes: readonly Prefix[]) {
    const disjoint = aggregate(ofFamily(prefixes, 4))
    const sorted = disjoint.map((prefix) => ({ first: Number(prefix.value), length: prefix.length }))
    sorted.sort((a, b) => a.first - b.first)
    this.#first = sorted.map(({ first }) => first)
    this.#last = sorted.map(({ first, length }) => first + 2 ** (addressBits(4) - length) - 1)
  }

  /** The address as a number, 0 to 2^32 - 1. */
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

// Which tracked connections are between pods of this node and pods of other clusters.

/** A node that tracks more says "at least": reading them takes time, and a figure of this size says enough. */
export const MAX_ENTRIES_READ = 200_000

interface CountInit {
  /** Where the pods of this node are. */
  readonly pods: readonly Prefix[]
  /** Not all of these are known. */
  readonly podsCut: boolean
  /** Under which pods of other clusters are reached from here. */
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
  /** What is in the kernel: it says where this node's pods are. */
  readonly plan: () => NodeRoutePlan | undefined
  /** Called when another figure is to be reported. */
  readonly onChange: () => void
}

export class ConnectionLoop {
  readonly #deps: ConnectionLoopDeps
  readonly #config: Pick<RouteAgentConfig, 'node'>
  readonly #loop: ReconcileLoop
  #reported: { readonly figure: OpenConnections | undefined; readonly at: number } | undefined
  #failure: string | undefined

  constructor(deps: ConnectionLoopDeps, config: Pick<RouteAgentConfig, 'node'>) {
    this.#deps = deps
    this.#config = config
    const pace = { ...LOOP_PACE, resyncMs: COUNT_CONNECTIONS_MS }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'connections'), pace, (signal) => this.#round(signal))
  }

  /** What this node reports; it may differ a little from what was counted last. Undefined: not known. */
  get reported(): OpenConnections | undefined {
    return this.#reported?.figure
  }

  /** There is a plan. Where there was one before, the next count comes when it is due. */
  planned(): void {
    if (this.#reported === undefined) this.#loop.poke()
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { caches, facts, connections, clock, metrics, onChange } = this.#deps
    const plan = this.#deps.plan()
    const reading = readWorld(caches, this.#config.node)
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

  // Nothing depends on the figure: it is not known then, and the next count comes when it is due.
  #fail(error: unknown, signal: AbortSignal): undefined {
    signal.throwIfAborted()
    const why = messageOf(error)
    if (why !== this.#failure) {
      this.#deps.logger.warn('open connections cannot be counted', { reason: 'ConnectionsNotCounted', why })
    }
    this.#failure = why
  }
}
