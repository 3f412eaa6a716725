/** How many connections the pods of this cluster have with those of others: the sum of what its nodes report. */
import type { ClusterApi } from '../../kubeapi/cluster-api.ts'
import type { Node, RouteAgent } from '../../model/objects.ts'
import {
  MAX_OPEN_CONNECTIONS,
  type OpenConnections,
  isWorthReporting,
  openConnectionsProblem,
} from '../../model/open-connections.ts'
import type { Clock } from '../../reconcile/clock.ts'

/**
 * Of all nodes together. A node that reports nothing, or an impossible figure, makes the sum a lower bound. Undefined
 * where no node reports, or where nothing but zero is known of a part.
 */
export function sumOpenConnections(nodes: readonly Node[], agents: readonly RouteAgent[]): OpenConnections | undefined {
  const byNode = new Map(agents.map(({ metadata, status }) => [metadata.name, status?.openConnections]))
  const reported = nodes.flatMap(({ metadata }) => {
    const one = byNode.get(metadata.name)
    return one === undefined || openConnectionsProblem(one) !== undefined ? [] : [one]
  })
  const sum = reported.reduce((all, { count }) => all + count, 0)
  const isWhole =
    reported.length === nodes.length && reported.every(({ atLeast }) => !atLeast) && sum <= MAX_OPEN_CONNECTIONS
  if (reported.length === 0 || (sum === 0 && !isWhole)) return undefined
  return { count: Math.min(sum, MAX_OPEN_CONNECTIONS), atLeast: !isWhole }
}

type Api = Pick<ClusterApi, 'cache'>

/** Reads from now on; what it gives is the sum as it is then. Undefined: not known. */
export function openConnectionsReader(api: Api): () => OpenConnections | undefined {
  const [nodes, agents] = [api.cache('Node'), api.cache('RouteAgent')]
  return () => (nodes.synced && agents.synced ? sumOpenConnections(nodes.list(), agents.list()) : undefined)
}

/** The sum as the other members get it: every change of it goes to all of them. */
export class ReportedConnections {
  readonly #api: Api
  readonly #read: () => OpenConnections | undefined
  readonly #clock: Pick<Clock, 'monotonic'>
  #reported: { readonly sum: OpenConnections | undefined; readonly at: number } | undefined

  constructor(api: Api, clock: Pick<Clock, 'monotonic'>) {
    this.#api = api
    this.#read = openConnectionsReader(api)
    this.#clock = clock
  }

  get(): OpenConnections | undefined {
    const sum = this.#read()
    const at = this.#clock.monotonic()
    const reported = this.#reported
    if (reported !== undefined && !isWorthReporting(reported.sum, sum, at - reported.at)) return reported.sum
    this.#reported = { sum, at }
    return sum
  }

  /** Calls back when a node reports another figure. Gives the function that ends it. */
  onChange(listener: () => void): () => void {
    return this.#api.cache('RouteAgent').onChange((change) => {
      const isSame =
        change?.type === 'set' &&
        change.object.status?.openConnections?.count === change.previous?.status?.openConnections?.count &&
        change.object.status?.openConnections?.atLeast === change.previous?.status?.openConnections?.atLeast
      if (!isSame) listener()
    })
  }
}
