/** A site of many services in memory, with the routeagent's balance loop on a real nftables, for bench/apply.ts. */
import type { ObjectCache, ObjectChange } from '../kubeapi/cluster-api.ts'
import { FakeRouteTable } from '../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../kernel/fake/fake-sysctl.ts'
import { formatNft } from '../kernel/nft/nft-text.ts'
import { NftSession } from '../kernel/nft/nft-session.ts'
import type { NftStatement } from '../kernel/nft/nft-transaction.ts'
import type {
  Cluster,
  ClusterTrafficPolicy,
  EndpointSlice,
  Gateway,
  Membership,
  Namespace,
  Node,
  Pod,
  RouteAgent,
  ServiceImport,
  TrafficPolicy,
} from '../model/objects.ts'
import { LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER } from '../model/spec-constants.ts'
import { SystemClock } from '../reconcile/clock.ts'
import { BalanceLoop } from '../routeagent/balance/balance-loop.ts'
import { FactsReader } from '../routeagent/world/node-world.ts'
import { LazyInformer } from '../routeagent/world/read-world.ts'
import { routeAgentMetrics } from '../routeagent/world/metrics.ts'
import { CapturingLogger } from '../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../runtime/metrics/prometheus-metrics.ts'

/** Applies the statements and keeps them. */
class RecordingNft extends NftSession {
  #last: readonly NftStatement[] = []
  override async run(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void> {
    this.#last = statements
    await super.run(statements, signal)
  }
  lastText(): string {
    return formatNft(this.#last, 'ip')
  }
}

/** Objects of one kind, all present from the start. */
class BenchCache<
  T extends { readonly metadata: { readonly name: string; readonly namespace?: string } },
> implements ObjectCache<T> {
  readonly synced = true
  readonly #objects = new Map<string, T>()
  readonly #listeners = new Set<(change: ObjectChange<T> | undefined) => void>()
  constructor(objects: readonly T[]) {
    for (const object of objects) this.#objects.set(cacheKey(object.metadata.name, object.metadata.namespace), object)
  }
  list(): readonly T[] {
    return [...this.#objects.values()]
  }
  get(name: string, namespace?: string): T | undefined {
    return this.#objects.get(cacheKey(name, namespace))
  }
  onChange(listener: (change: ObjectChange<T> | undefined) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }
  whenSynced(): Promise<void> {
    return Promise.resolve()
  }
  set(object: T): void {
    const key = cacheKey(object.metadata.name, object.metadata.namespace)
    const previous = this.#objects.get(key)
    this.#objects.set(key, object)
    for (const listener of this.#listeners) listener({ type: 'set', object, previous })
  }
}

function cacheKey(name: string, namespace = ''): string {
  return `${namespace}/${name}`
}

export class BenchSite {
  readonly nft = new RecordingNft()
  readonly loop: BalanceLoop
  readonly #slices: BenchCache<EndpointSlice>
  readonly #policies = new BenchCache<TrafficPolicy>([])
  readonly #services: number

  /** `policy`: divides the connections of all services. */
  constructor(services: number, policy?: ClusterTrafficPolicy) {
    this.#services = services
    this.#slices = new BenchCache(Array.from({ length: services }, (_, i) => sliceOf(i, [1, 2])))
    const caches = {
      memberships: new BenchCache<Membership>([MEMBERSHIP]),
      nodes: new BenchCache<Node>([NODE]),
      clusters: new BenchCache<Cluster>(['milano', 'paris', 'roma', 'tokyo'].map(clusterOf)),
      endpoints: new BenchCache<never>([]),
      gateways: new BenchCache<Gateway>([]),
      imports: new BenchCache<ServiceImport>(Array.from({ length: services }, (_, i) => importOf(i))),
      slices: this.#slices,
      routeAgents: new LazyInformer(() => new BenchCache<RouteAgent>([])),
      callers: {
        pods: new LazyInformer(() => new BenchCache<Pod>([])),
        namespaces: new LazyInformer(() => new BenchCache<Namespace>([])),
      },
      access: {
        exports: new BenchCache<never>([]),
        policies: new BenchCache<never>([]),
        clusterPolicies: new BenchCache<never>([]),
      },
      traffic: {
        policies: this.#policies,
        clusterPolicies: new BenchCache<ClusterTrafficPolicy>(policy === undefined ? [] : [policy]),
      },
    }
    const routes = new FakeRouteTable({
      links: [{ name: 'eth0' }],
      addresses: [{ device: 'eth0', address: '192.0.2.1/24' }],
    })
    this.loop = new BalanceLoop(
      {
        caches,
        nft: this.nft,
        facts: new FactsReader({ routes, sysctl: new FakeSysctl() }),
        clock: new SystemClock(),
        logger: new CapturingLogger(),
        metrics: routeAgentMetrics(createMetrics('routeagent')),
      },
      { node: 'worker' },
    )
    this.loop.follow()
  }

  /** Replaces the second endpoint of one service. */
  async changeOneEndpoint(turn: number): Promise<void> {
    this.#slices.set(sliceOf((turn * 7) % this.#services, [1, 3 + turn]))
    await this.loop.reconcile(new AbortController().signal)
  }

  /** Gives a service these endpoints in a cluster, by their addresses. */
  setEndpoints(service: number, cluster: string, addresses: readonly string[]): void {
    this.#slices.set(sliceAt(service, cluster, addresses))
  }

  /** Divides the connections to one service by the weights of clusters. */
  setWeights(service: number, weights: Readonly<Record<string, number>>): void {
    const name = `service-${service}`
    this.#policies.set({
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'TrafficPolicy',
      metadata: { name, namespace: 'shop', uid: name },
      spec: { targetRefs: [{ name }], order: [{ any: {}, weights }] },
    })
  }

  /** The same statements for the service after the one that was changed. */
  textForOther(text: string, turn: number): string {
    const changed = (turn * 7) % this.#services
    return text.replaceAll(vip(changed), vip(changed + 1))
  }
}

const MEMBERSHIP: Membership = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'Membership',
  metadata: { name: 'self' },
  spec: {
    clusterId: 'milano',
    phase: 'joined',
    clusterset: 'bench',
    globalRange: '244.0.0.0/8',
    accessDefault: 'allow',
    clustersetIpRange: '245.0.0.0/16',
  },
}

const NODE: Node = {
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name: 'worker' },
  spec: { podCIDR: '10.42.1.0/24' },
  status: { addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] },
}

function clusterOf(id: string, index: number): Cluster {
  const spec = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], globalCIDRs: [`244.${index}.0.0/16`] }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Cluster',
    metadata: { name: id },
    spec: { id, index, ...spec, labels: {} },
  }
}

/** The clusterset IP of a service. */
export function vip(i: number): string {
  return `245.0.${i >> 8}.${i & 0xff}`
}

function importOf(i: number): ServiceImport {
  return {
    apiVersion: 'multicluster.x-k8s.io/v1beta1',
    kind: 'ServiceImport',
    metadata: { name: `service-${i}`, namespace: 'shop' },
    spec: { type: 'ClusterSetIP', ips: [vip(i)], ports: [{ name: 'http', protocol: 'TCP', port: 80 }] },
  }
}

function sliceOf(i: number, hosts: readonly number[]): EndpointSlice {
  return sliceAt(
    i,
    'paris',
    hosts.map((host) => `244.${host}.${i >> 8}.${i & 0xff}`),
  )
}

function sliceAt(i: number, cluster: string, addresses: readonly string[]): EndpointSlice {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: `service-${i}-${cluster}`,
      namespace: 'shop',
      labels: { [LABEL_SERVICE_NAME]: `service-${i}`, [LABEL_SOURCE_CLUSTER]: cluster },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
  }
}
