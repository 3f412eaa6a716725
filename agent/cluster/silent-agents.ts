/** Finds the nodes whose routeagent no longer writes: what it reported is not of now. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { ROUTE_AGENT_BEAT_MS, type RouteAgent } from '../../model/model.ts'
import { type Clock, Heartbeats, Listeners } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'

export interface SilentAgentsDeps {
  readonly api: Pick<ClusterApi, 'cache' | 'read'>
  readonly clock: Clock
  readonly logger: Logger
}

/** A routeagent that has missed three of its writes is dead, or cannot write. */
const STALE_MS = 3 * ROUTE_AGENT_BEAT_MS
/** More nodes than this at once are no single dead processes. Their reports count, and are not read again. */
const MOST_READ = 100
const MOST_NAMED = 10

export class SilentAgents {
  readonly #deps: SilentAgentsDeps
  /** An earlier release may write no time, and its reports count. */
  readonly #beats: Heartbeats
  readonly #listeners = new Listeners()
  #known: readonly string[] = []
  #nodes: ReadonlySet<string> = new Set()

  /** `lookMs` is the longest time between two calls of look(). */
  constructor(deps: SilentAgentsDeps, { lookMs }: { readonly lookMs: number }) {
    this.#deps = deps
    this.#beats = new Heartbeats(deps, { staleMs: STALE_MS, suspectMs: STALE_MS - 2 * lookMs, gapMs: 4 * lookMs })
  }

  /** The names of the nodes, as of the last look. */
  get nodes(): ReadonlySet<string> {
    return this.#nodes
  }

  /** Calls back when the nodes differ. Gives the function that unsubscribes. */
  onChange(listener: () => void): () => void {
    return this.#listeners.add(listener)
  }

  /**
   * To be called at intervals, once the cache of RouteAgents is synced. A cache that has stalled shows old times, so
   * every look reads one object, and those that are late. Throws ClusterApiError.
   */
  async look(signal: AbortSignal): Promise<void> {
    const present = new Map(this.#agents().map((agent) => [agent.metadata.name, beatOf(agent)]))
    for (const name of this.#known) if (!present.has(name)) this.#beats.forget(name)
    for (const [name, beat] of present) this.#beats.saw(name, beat)
    this.#known = [...present.keys()]
    const late = this.#beats.doubtful()
    const [one] = [...late, ...this.#known.filter((name) => present.get(name) !== undefined)]
    if (one !== undefined && late.length <= MOST_READ) {
      for (const name of new Set([...late, one])) {
        this.#beats.saw(name, beatOf(await this.#deps.api.read('RouteAgent', name, undefined, signal)))
      }
      this.#beats.viewIsLive()
    }
    this.#take(this.#beats.stopped())
  }

  #agents(): readonly RouteAgent[] {
    return this.#deps.api.cache('RouteAgent').list()
  }

  #take(nodes: readonly string[]): void {
    const before = this.#nodes
    if (nodes.length === before.size && nodes.every((name) => before.has(name))) return
    this.#nodes = new Set(nodes)
    const fresh = nodes.filter((name) => !before.has(name))
    if (fresh.length > 0) {
      const more = fresh.length > MOST_NAMED ? { more: fresh.length - MOST_NAMED } : {}
      const what = { reason: 'RouteAgentSilent', nodes: fresh.slice(0, MOST_NAMED), ...more } as const
      this.#deps.logger.warn('routeagents have stopped reporting', what)
    }
    this.#listeners.call()
  }
}

/** An earlier release writes the time of `podsOutside` alone. */
function beatOf(agent: RouteAgent | undefined): string | undefined {
  const { heartbeatTime, podsOutside, podsOutsideTime } = agent?.status ?? {}
  return heartbeatTime ?? (podsOutside === undefined ? undefined : podsOutsideTime)
}
