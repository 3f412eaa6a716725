/**
 * Finds the ranges that this cluster requires outside the lanes, gives them to the mirror, and reports them and the
 * ClusterProperties to the broker with this cluster's facts.
 */
import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import { isDeepStrictEqual } from 'node:util'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { statedProperties } from '../../model/services/services.ts'
import { type ClusterFacts, parseBrokerAddress } from '../../protocol/protocol.ts'
import type { IdentityStore } from '../../protocol/membership/membership.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { proxyChoice } from '../../runtime/proxy/proxy.ts'
import { type MachineNetwork, readMachineNetwork } from '../../runtime/runtime.ts'
import type { Publisher } from '../link/link.ts'
import { type AgentMetrics, type SharedFindings, loopDeps } from '../loop/loop.ts'
import { type RequiredRangesWorld, planRequiredRanges } from './plan-required-ranges.ts'

export interface Surroundings {
  readonly machine: MachineNetwork
  /** Addresses at which the agent connects to the broker: its own, and those of the proxy that leads to it. */
  readonly broker: readonly string[]
}

export interface RequiredRangesLoopDeps {
  readonly api: ClusterApi
  readonly publisher: Publisher
  readonly findings: SharedFindings
  readonly surroundings: () => Promise<Surroundings>
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export interface RequiredRangesLoopInit {
  /** Id of this cluster. */
  readonly own: string
  /** The facts that this cluster states about itself. If undefined, those it joined with stay and nothing is sent. */
  readonly facts: ClusterFacts | undefined
  readonly loop: LoopInit
}

const KINDS = ['Node', 'RouteAgent', 'EndpointSlice', 'Cluster', 'ClusterProperty'] as const
const MAX_NAMES = 3
/** Nodes change often because of their heartbeats, but their addresses rarely do. */
const LOOK_MS = 1000
/**
 * After this time, objects that cannot be read no longer delay the facts. The RBAC rules may be those of an earlier
 * release.
 */
const PATIENCE_MS = 60_000
/** The API servers maintain this EndpointSlice of their own Service themselves. */
const API_SERVER = { namespace: 'default', name: 'kubernetes' } as const

export class RequiredRangesLoop {
  readonly #deps: RequiredRangesLoopDeps
  readonly #init: RequiredRangesLoopInit
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #startedAt: number
  #reported: ClusterFacts | undefined
  #leftOut = ''

  constructor(deps: RequiredRangesLoopDeps, init: RequiredRangesLoopInit) {
    this.#deps = deps
    this.#init = init
    this.#startedAt = deps.clock.monotonic()
    const timing = { ...init.loop, minMs: Math.max(init.loop.minMs, LOOK_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'needs'), timing, () => this.#round())
    for (const kind of ['Node', 'RouteAgent', 'Cluster', 'ClusterProperty'] as const) {
      this.#subscriptions.add(deps.api.cache(kind).onChange(() => this.#loop.poke()))
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  async #round(): Promise<void> {
    const { findings, surroundings } = this.#deps
    const { needed, reported } = planRequiredRanges(this.#world(await surroundings()))
    findings.setNeeded(needed)
    this.#report(reported)
  }

  #report(reported: readonly string[]): void {
    const { publisher, api, clock } = this.#deps
    const { facts } = this.#init
    if (facts === undefined) return
    // Incomplete ranges would withdraw the missing ones at the broker until the next round.
    const isWhole = KINDS.every((kind) => api.cache(kind).synced)
    if (!isWhole && clock.monotonic() - this.#startedAt < PATIENCE_MS) return
    const now = {
      ...facts,
      ...(reported.length === 0 ? {} : { neededCIDRs: reported }),
      ...this.#properties(),
    }
    if (isDeepStrictEqual(now, this.#reported)) return
    this.#reported = now
    publisher.setFacts(now)
  }

  #properties(): Pick<ClusterFacts, 'properties'> {
    const cache = this.#deps.api.cache('ClusterProperty')
    if (!cache.synced) return this.#statedBefore()
    const { properties, leftOut } = statedProperties(cache.list())
    const names = leftOut.slice(0, MAX_NAMES).map((name) => JSON.stringify(name.slice(0, 100)))
    const text =
      names.length < leftOut.length ? `${names.join()} and ${leftOut.length - names.length} more` : names.join()
    if (text !== this.#leftOut && text !== '')
      this.#deps.logger.warn('ClusterProperties are not sent: too many, or too long', {
        reason: 'InvalidValue',
        why: text,
      })
    this.#leftOut = text
    return Object.keys(properties).length === 0 ? {} : { properties }
  }

  /** Properties that have not been read may still be there. The own Cluster object has those that the broker knows. */
  #statedBefore(): Pick<ClusterFacts, 'properties'> {
    const stated = this.#reported ?? this.#deps.api.cache('Cluster').get(this.#init.own)?.spec
    return stated?.properties === undefined ? {} : { properties: stated.properties }
  }

  #world({ machine, broker }: Surroundings): RequiredRangesWorld {
    const { api } = this.#deps
    const { own, facts } = this.#init
    const apiServer = api.cache('EndpointSlice').get(API_SERVER.name, API_SERVER.namespace)
    return {
      own: facts ?? api.cache('Cluster').get(own)?.spec ?? { podCIDRs: [], serviceCIDRs: [] },
      nodes: api.cache('Node').list(),
      routeAgents: api.cache('RouteAgent').list(),
      apiServers: apiServer === undefined ? [] : [apiServer],
      machine,
      broker,
    }
  }
}

// Reads the networks of the agent's own machine or pod, and the addresses of the broker and of the proxy to it.

/** Limits the addresses of one host name. */
const MAX_ADDRESSES = 8

/**
 * Gives a reader that remembers the last answer for each name: a failed lookup does not mean that the name has no
 * address. `env` decides whether a proxy leads to the broker, as it does for the connection itself. Throws UserError
 * for a proxy that cannot be parsed.
 */
export function surroundingsReader(
  identity: Pick<IdentityStore, 'read'>,
  ask: (host: string) => Promise<readonly string[]> = lookUp,
  env: Readonly<Record<string, string | undefined>> = process.env,
): () => Promise<Surroundings> {
  const proxyTo = proxyChoice(env)
  const known = new Map<string, readonly string[]>()
  const addressesOf = async (host: string): Promise<readonly string[]> => {
    if (isIP(host) !== 0) return [host]
    const found = await ask(host).catch(() => undefined)
    if (found !== undefined) known.set(host, found.slice(0, MAX_ADDRESSES))
    return known.get(host) ?? []
  }
  return async () => {
    const { brokerAddresses = [], learnedAddresses = [] } = (await identity.read().catch(() => undefined)) ?? {}
    const book = [...brokerAddresses, ...learnedAddresses]
    const brokers = book.map((one) => parseBrokerAddress(one))
    // The proxy may be unusable or removed later, so the broker's own addresses stay required.
    const hosts = new Set(brokers.flatMap((one) => [one.host, proxyTo(one)?.host ?? one.host]))
    const broker = (await Promise.all([...hosts].map(addressesOf))).flat()
    return { machine: await readMachineNetwork(), broker: [...new Set(broker)].sort() }
  }
}

async function lookUp(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address)
}
