/** Counts the connections between the pods of this cluster and those of others: the sum of what its nodes report. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { ipv4Among, overlaps, parsePrefix } from '../../model/addresses/addresses.ts'
import {
  type Cluster,
  MAX_OPEN_CONNECTIONS,
  MEMBERSHIP_NAME,
  type Node,
  type OpenConnections,
  type RouteAgent,
  isMachine,
  isWorthReporting,
  openConnectionsProblem,
  openConnectionsText,
} from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { SilentAgents } from './silent-agents.ts'

/**
 * The sum over all machines; virtual nodes have no routeagent. A node that reports nothing, or an impossible number, or
 * that is `silent`, makes the sum a lower bound. Undefined if no node reports, or if a lower bound would be zero.
 */
export function sumOpenConnections(
  nodes: readonly Node[],
  agents: readonly RouteAgent[],
  silent: ReadonlySet<string> = new Set(),
): OpenConnections | undefined {
  const heard = agents.filter(({ metadata }) => !silent.has(metadata.name))
  const byNode = new Map(heard.map(({ metadata, status }) => [metadata.name, status?.openConnections]))
  const machines = nodes.filter((node) => isMachine(node))
  const reported = machines.flatMap(({ metadata }) => {
    const one = byNode.get(metadata.name)
    return one === undefined || openConnectionsProblem(one) !== undefined ? [] : [one]
  })
  const sum = reported.reduce((all, { count }) => all + count, 0)
  const isWhole =
    reported.length === machines.length && reported.every(({ atLeast }) => !atLeast) && sum <= MAX_OPEN_CONNECTIONS
  if (reported.length === 0 || (sum === 0 && !isWhole)) return undefined
  return { count: Math.min(sum, MAX_OPEN_CONNECTIONS), atLeast: !isWhole }
}

type Api = Pick<ClusterApi, 'cache'>

/** The nodes whose reports do not count. */
type Silent = Pick<SilentAgents, 'nodes' | 'onChange'>

/** Gives a function that reads the current sum. It gives undefined while the sum is unknown. */
function openConnectionsReader(api: Api, silent: Pick<Silent, 'nodes'>): () => OpenConnections | undefined {
  const [nodes, agents] = [api.cache('Node'), api.cache('RouteAgent')]
  return () =>
    nodes.synced && agents.synced ? sumOpenConnections(nodes.list(), agents.list(), silent.nodes) : undefined
}

/**
 * The sum as it is reported to the other members. Each change is sent to all of them, so only changes worth reporting
 * count.
 */
export class ReportedConnections {
  readonly #api: Api
  readonly #read: () => OpenConnections | undefined
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #silent: Silent
  #reported: { readonly sum: OpenConnections | undefined; readonly at: number } | undefined

  constructor(api: Api, clock: Pick<Clock, 'monotonic'>, silent: Silent) {
    this.#api = api
    this.#silent = silent
    this.#read = openConnectionsReader(api, silent)
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

  /** Calls back when a node reports another number, or no more. Gives the function that unsubscribes. */
  onChange(listener: () => void): () => void {
    const stopSilent = this.#silent.onChange(listener)
    const stop = this.#api.cache('RouteAgent').onChange((change) => {
      const isSame =
        change?.type === 'set' &&
        change.object.status?.openConnections?.count === change.previous?.status?.openConnections?.count &&
        change.object.status?.openConnections?.atLeast === change.previous?.status?.openConnections?.atLeast
      if (!isSame) listener()
    })
    return () => {
      stopSilent()
      stop()
    }
  }
}

// Reports once that this cluster gets global addresses, because another member's pods or services use the same
// addresses. Users who find broken connections see when this happened and which member caused it.

interface OwnRenumberingDeps {
  readonly api: Pick<ClusterApi, 'cache' | 'report'>
  readonly clock: Pick<Clock, 'setTimer'>
  readonly logger: Logger
  readonly silentAgents: Pick<SilentAgents, 'nodes'>
}

/** The broker writes both clusters at once, but the other one may be mirrored here a moment later. */
const SETTLE_MS = 2000
const MAX_NAMED = 10

/** Watches the Cluster with id `own`. Gives the function that ends the watch. */
export function reportOwnRenumbering(
  { api, clock, logger, silentAgents }: OwnRenumberingDeps,
  own: string,
): () => void {
  const clusters = api.cache('Cluster')
  const openConnections = openConnectionsReader(api, silentAgents)
  let cancel = (): void => undefined
  const report = (): void => {
    const now = clusters.get(own)
    if (now === undefined || now.spec.globalCIDRs.length === 0) return
    const note = renumberingNote(now, clusters.list(), openConnections())
    logger.warn('this cluster now has global addresses', { reason: 'GlobalAddressesGiven', why: note })
    const regarding = { kind: 'Membership', name: MEMBERSHIP_NAME } as const
    api.report({ regarding, type: 'Warning', reason: 'GlobalAddressesGiven', note })
  }
  const stop = clusters.onChange((change) => {
    if (change?.type !== 'set' || change.object.metadata.name !== own) return
    const had = change.previous?.spec.globalCIDRs.length
    if (had !== 0 || change.object.spec.globalCIDRs.length === 0) return
    cancel()
    cancel = clock.setTimer(SETTLE_MS, report)
  })
  return () => {
    stop()
    cancel()
  }
}

/**
 * The note of the Event. `open` is the number of connections that the pods had with other clusters, undefined if
 * unknown.
 */
export function renumberingNote(own: Cluster, all: readonly Cluster[], open: OpenConnections | undefined): string {
  const pairs = own.spec.podCIDRs.map((cidr, i) => `${cidr} is ${own.spec.globalCIDRs[i] ?? ''}`)
  const others = all.filter(({ spec }) => spec.id !== own.spec.id && shares(own, { spec })).map(({ spec }) => spec.id)
  const named = others.sort().slice(0, MAX_NAMED).join(', ')
  const more = others.length > MAX_NAMED ? ` and ${others.length - MAX_NAMED} more` : ''
  const whose = others.length === 0 ? 'another member' : `${named}${more}`
  return (
    `other clusters now reach the pods of this cluster by global addresses (${pairs.join(', ')}), because pods or services ` +
    `of ${whose} have the same addresses; ${brokenText(open)}`
  )
}

function brokenText(open: OpenConnections | undefined): string {
  if (open === undefined) return 'open connections to them break (number unknown)'
  return `${openConnectionsText(open)} to them break`
}

/** Whether the pods of one cluster overlap the pods or services of the other. IPv6 is never translated. */
function shares(own: Pick<Cluster, 'spec'>, other: Pick<Cluster, 'spec'>): boolean {
  const pods = ipv4Among(own.spec.podCIDRs).map((text) => parsePrefix(text))
  const otherPods = ipv4Among(other.spec.podCIDRs).map((text) => parsePrefix(text))
  const meets = (texts: readonly string[], prefixes: typeof pods): boolean =>
    ipv4Among(texts).some((text) => prefixes.some((prefix) => overlaps(prefix, parsePrefix(text))))
  return (
    meets(other.spec.podCIDRs, pods) || meets(other.spec.serviceCIDRs, pods) || meets(own.spec.serviceCIDRs, otherPods)
  )
}
