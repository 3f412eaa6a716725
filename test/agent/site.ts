/** A member site for stories: an in-memory API, an agent, and short ways to write and read objects. */
import type { AskClusterDns } from '../../agent/cluster/ask-resolver.ts'
import type { DnsMaps } from '../../agent/cluster/dns-mender.ts'
import type { ExportAccess } from '../../agent/export/offers.ts'
import { runAgent } from '../../agent/main.ts'
import { type AgentConfig, agentConfig } from '../../agent/loop/config.ts'
import type { Surroundings } from '../../agent/cluster/required-ranges-loop.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import type { EndpointSlice, KubeObject, Service, ServiceExport, SliceEndpoint } from '../../model/objects.ts'
import { type Clock, SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { clusterObject, membershipObject } from '../support/objects/cluster-objects.ts'
import { exportObject, serviceObject, sliceObject } from '../support/objects/service-objects.ts'
import type { FakeClusterset } from './fake-clusterset.ts'

export interface SiteInit {
  readonly id: string
  readonly podCIDR: string
  readonly globalCIDR?: string
  /** An IPv6 pod CIDR, which the clusterset routes. */
  readonly podCIDR6?: string
  readonly api?: MemoryApi
  readonly config?: Partial<AgentConfig>
  readonly clock?: Clock
  readonly askClusterDns?: AskClusterDns
  readonly dnsMaps?: DnsMaps
}

export class Site {
  readonly api: MemoryApi
  readonly id: string
  logger = new CapturingLogger()
  status = new StatusBoard()
  #metrics = createMetrics('agent')
  readonly #set: FakeClusterset
  readonly #init: SiteInit
  #stop: AbortController | undefined
  #run: Promise<void> = Promise.resolve()

  constructor(set: FakeClusterset, init: SiteInit) {
    this.#set = set
    this.#init = init
    this.api = init.api ?? new MemoryApi()
    this.id = init.id
    const six = init.podCIDR6 === undefined ? [] : [init.podCIDR6]
    const globalCIDRs = init.globalCIDR === undefined ? [] : [init.globalCIDR, ...six]
    const spec = { id: init.id, podCIDRs: [init.podCIDR, ...six], globalCIDRs }
    set.join(spec)
    this.#spec = { ...spec, index: init.id.length, serviceCIDRs: [], labels: {} }
  }
  readonly #spec: Extract<KubeObject, { kind: 'Cluster' }>['spec']

  /** Writes the objects that `sealane join` leaves behind. */
  async join(): Promise<void> {
    await this.api.apply(clusterObject(this.#spec))
    await this.setPhase('joined')
  }

  async setPhase(phase: 'joined' | 'leaving'): Promise<void> {
    await this.api.apply(membershipObject({ clusterId: this.id, phase, clusterset: 'test' }))
  }

  start(link = this.#set.link(this.id)): void {
    const stop = new AbortController()
    this.#stop = stop
    this.logger = new CapturingLogger()
    this.status = new StatusBoard()
    this.#metrics = createMetrics('agent')
    const { askClusterDns, dnsMaps } = this.#init
    const deps = {
      ...(askClusterDns === undefined ? {} : { askClusterDns }),
      ...(dnsMaps === undefined ? {} : { dnsMaps }),
      api: this.api,
      clock: this.#init.clock ?? new SystemClock(),
      logger: this.logger,
      metrics: this.#metrics,
      status: this.status,
      openLink: () => Promise.resolve(link),
      surroundings: () => Promise.resolve(this.surroundings),
    }
    const { podCIDRs, serviceCIDRs, labels } = this.#spec
    const facts = { podCIDRs, serviceCIDRs, labels, version: '0' }
    this.#run = runAgent(deps, agentConfig('unused', { facts, ...this.#init.config }), stop.signal)
  }

  async stop(): Promise<void> {
    this.#stop?.abort()
    // A caller that needs the error of the agent uses ended().
    await this.#run.catch(() => undefined)
  }

  /** Resolves when the agent ends by itself. */
  ended(): Promise<void> {
    return this.#run
  }

  /** The network of the agent's machine, and the addresses at which it reaches the broker. */
  surroundings: Surroundings = { machine: { interfaces: [], nextHops: [], nameServers: [] }, broker: [] }

  export(namespace: string, name: string): void {
    this.api.put(serviceExport(namespace, name))
  }

  show(): string[] {
    return this.api.cache('ServiceImport').list().map(showImport)
  }

  slices(): string[] {
    return this.api
      .cache('EndpointSlice')
      .list()
      .filter(({ metadata }) => metadata.labels?.['multicluster.kubernetes.io/source-cluster'] !== undefined)
      .map(showSlice)
      .sort()
  }

  metrics(): Promise<string> {
    return this.#metrics.text()
  }

  /** Returns the Events since the last call without their notes: `ServiceExport web Normal Exported`. */
  reported(): string[] {
    return this.api.events
      .splice(0)
      .map(({ regarding, type, reason }) => `${regarding.kind} ${regarding.name} ${type} ${reason}`)
  }

  conditions(namespace: string, name: string): string {
    const found = this.api.get('ServiceExport', name, namespace)?.status?.conditions ?? []
    return found.map(({ type, status, reason }) => `${type}=${status}/${reason}`).join(' ')
  }
}

/** No policy, and the default of the clusterset allows. */
export const ALLOWS_ALL: ExportAccess = {
  exposure: 'exports',
  clustersetDefault: 'allow',
  clusterPolicies: [],
  policies: [],
  clusters: [],
}

export function serviceExport(namespace: string, name: string): ServiceExport {
  return exportObject({ name, namespace })
}

export function service(namespace: string, name: string, spec: Service['spec'] = {}): Service {
  const ports = [{ name: 'http', port: 80, targetPort: 8080 }]
  return serviceObject({ name, namespace }, { ports, ...spec })
}

/**
 * Returns a slice with endpoints from `address` or `hostname@address`, with a leading '!' when not ready. Its port is
 * 8080, named http.
 */
export function slice(
  namespace: string,
  name: string,
  endpoints: string,
  change: Partial<EndpointSlice> = {},
): EndpointSlice {
  const metadata = { name: `${name}-1`, namespace, labels: { 'kubernetes.io/service-name': name } }
  const reported = {
    ports: [{ name: 'http', port: 8080 }],
    endpoints: endpoints.split(' ').filter(Boolean).map(endpoint),
  }
  return { ...sliceObject(metadata, reported), ...change }
}

function endpoint(text: string): SliceEndpoint {
  const conditions = { ready: !text.startsWith('!') }
  const [first = '', second] = text.replace('!', '').split('@')
  return second === undefined
    ? { addresses: [first], conditions }
    : { addresses: [second], hostname: first, conditions }
}

/** Returns `shop/web ClusterSetIP 245.0.0.1 http:80 from milano,paris Ready`. */
export function showImport({ metadata, spec, status }: Extract<KubeObject, { kind: 'ServiceImport' }>): string {
  const ports = spec.ports.map((port) => `${port.name ?? ''}:${port.port}`).join(',')
  const from = (status?.clusters ?? []).map(({ cluster }) => cluster).join(',')
  const ready = status?.conditions?.map(({ reason }) => reason).join() ?? 'no status'
  return `${metadata.namespace ?? ''}/${metadata.name} ${spec.type} ${spec.ips?.join(',') ?? '-'} ${ports} from ${from} ${ready}`
}

/** Returns `web<-milano http:8080 244.1.0.5(10-42-0-5) !244.1.0.6(db-0)`. */
export function showSlice({ metadata, ports, endpoints }: EndpointSlice): string {
  const shownPorts = (ports ?? []).map((port) => `${port.name ?? ''}:${port.port ?? ''}`).join(',')
  const shown = (endpoints ?? []).map(
    (one) => `${one.conditions?.ready === false ? '!' : ''}${one.addresses.join('+')}(${one.hostname ?? ''})`,
  )
  const label = (name: string): string => metadata.labels?.[`multicluster.kubernetes.io/${name}`] ?? '?'
  return `${label('service-name')}<-${label('source-cluster')} ${shownPorts} ${shown.join(' ')}`.trim()
}
