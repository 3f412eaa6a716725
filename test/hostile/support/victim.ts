/** A site of files whose agent trusts a fake broker, and what its gateway and a node would apply. */
import { readdirSync } from 'node:fs'
import { join, relative } from 'node:path'
import type { Test } from 'tap'
import { agentConfig } from '../../../agent/loop/config.ts'
import { runAgent } from '../../../agent/main.ts'
import type { FileApi } from '../../../kubeapi/files/file-api.ts'
import { describeGatewayPlan } from '../../gateway/support/wireguard-plans.ts'
import type { Kind } from '../../../model/objects.ts'
import { writeMemberIdentity } from '../../../protocol/membership/member-files.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { describeRouteAgentPlan } from '../../../routeagent/main.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/component.ts'
import { FileSite } from '../../kubeapi/files/file-site.ts'
import { world } from '../../gateway/support/worlds.ts'
import { cluster, endpoint, membership, node, WORKER_FACTS } from '../../routeagent/support/site.ts'
import { eventually } from '../../support/eventually.ts'
import { FakeBroker, type LooseRecord } from './fake-broker.ts'

/** Pods and services of the victim, milano. The other member, paris, has 10.44.0.0/16. */
export const FACTS = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], labels: {}, version: '0' }

const SITE = `
apiVersion: v1
kind: Service
metadata: { name: shelf, namespace: shop }
spec: { clusterIP: 10.43.0.9, ipFamilies: [IPv4], ports: [{ name: http, port: 80 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: shelf-1, namespace: shop, labels: { kubernetes.io/service-name: shelf } }
addressType: IPv4
ports: [{ name: http, port: 8080 }]
endpoints: [{ addresses: [10.42.1.7] }]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: shelf, namespace: shop }
---
apiVersion: v1
kind: Namespace
metadata: { name: quiet }
---
apiVersion: v1
kind: Namespace
metadata: { name: kube-system }
`

const KINDS = ['Cluster', 'Endpoint', 'ServiceImport', 'EndpointSlice', 'Gateway', 'Membership', 'Node'] as const

export interface VictimInit {
  /** The age of its certificate, which lasts four hours. */
  readonly ageMs?: number
  readonly renewal?: ((broker: FakeBroker) => FakeBroker['renewal']) | undefined
}

export class Victim {
  readonly broker: FakeBroker
  readonly logger = new CapturingLogger()
  readonly site: FileSite
  readonly api: FileApi
  #marks = 0

  private constructor(site: FileSite, broker: FakeBroker) {
    this.site = site
    this.api = site.open()
    this.broker = broker
  }

  /** Resolves once milano has imported what an honest broker would send. */
  static async start(t: Test, { ageMs = 0, renewal }: VictimInit = {}): Promise<Victim> {
    const site = new FileSite(t)
    site.write('all.yaml', SITE)
    const victim = new Victim(site, await FakeBroker.start(t, HONEST))
    victim.broker.renewal = renewal?.(victim.broker)
    await victim.#run(t, ageMs)
    await eventually(() => victim.plan().includes('10.44.0.8') && victim.plan().includes('10.42.1.7'), {
      deadlineMs: 20_000,
      say: 'what is honest is imported',
    })
    return victim
  }

  async #run(t: Test, ageMs: number): Promise<void> {
    const identity = await this.broker.identity('milano', ageMs)
    const config = agentConfig(this.site.state, { facts: FACTS })
    await writeMemberIdentity(join(this.site.state, 'identity'), identity)
    await Promise.all(KINDS.map((kind) => this.api.cache(kind).whenSynced(AbortSignal.timeout(10_000))))
    const own = endpoint('milano', 'gw')
    const metadata = { name: 'milano.gw-lane0' }
    for (const object of [cluster('milano', 1), membership(), { ...own, metadata }]) await this.api.apply(object)
    const stop = new AbortController()
    const clock = new SystemClock()
    const deps = { clock, logger: this.logger, metrics: createMetrics('agent'), status: new StatusBoard() }
    const running = runAgent({ ...deps, api: this.api }, config, stop.signal)
    // The test notices a failure of the agent by the changes that stop.
    running.catch((error: unknown) => t.fail(String(error)))
    t.teardown(async () => {
      stop.abort()
      await running.catch(() => undefined)
    })
  }

  /** What the gateway and a worker of milano would apply: routes, rules, WireGuard and nft as text. */
  plan(): string {
    const list = <K extends Kind>(kind: K) => this.api.cache(kind).list()
    const own = this.api.cache('Cluster').get('milano')
    if (own === undefined) return 'no cluster'
    const nodes = [node('gw', '192.0.2.10', '10.42.0.0/24'), node('worker', '192.168.7.11', '10.42.1.0/24')]
    const [clusters, endpoints] = [list('Cluster'), list('Endpoint')]
    const remotes = endpoints.filter(({ spec }) => spec.cluster !== 'milano')
    const gateway = describeGatewayPlan(world({ own, clusters, endpoints: remotes, nodes }))
    const membershipSpec = this.api.cache('Membership').get('self')?.spec
    const { globalRange = '', clustersetIpRange = '' } = membershipSpec ?? {}
    const ranges = { globalRange, clustersetIpRange }
    const facts = {
      node: 'worker',
      self: 'milano',
      nodes,
      gateways: [],
      routeAgents: [],
      overlayPort: 4810,
      facts: WORKER_FACTS,
      ...ranges,
    }
    const imports = list('ServiceImport')
    const worker = describeRouteAgentPlan({ ...facts, clusters, endpoints, imports, slices: list('EndpointSlice') })
    return `${gateway}\n${worker}`
  }

  /** Every object and every file of the site, with the content of our own objects. */
  holds(): string[] {
    const objects = (['Cluster', 'Endpoint', 'ServiceImport', 'EndpointSlice', 'Membership'] as const).flatMap((kind) =>
      this.api
        .cache(kind)
        .list()
        .map((object) => JSON.stringify([kind, object.metadata.namespace, object.metadata.name, specOf(object)])),
    )
    return [...objects, ...this.files()].sort()
  }

  /** The files below the folder of the site, without those that change with every write. */
  files(): string[] {
    const found = readdirSync(this.site.folder, { recursive: true, withFileTypes: true })
    return found
      .filter((entry) => entry.isFile() && !entry.name.endsWith('.tmp'))
      .map(({ parentPath, name }) => relative(this.site.folder, join(parentPath, name)))
      .filter((name) => !name.startsWith('state/agent/'))
      .sort()
  }

  /** Resolves once the agent has handled all that was sent before. */
  async caughtUp(): Promise<void> {
    const name = `mark-${++this.#marks}`
    const key = { cluster: 'marker', kind: 'ServiceExport', namespace: 'quiet', name }
    const seen = (): boolean => this.api.cache('ServiceImport').get(name, 'quiet') !== undefined
    this.broker.put(exported('marker', 'quiet', name, { type: 'Headless' }))
    await eventually(seen, { deadlineMs: 20_000, say: `${name} is imported` })
    this.broker.remove(key)
    this.broker.synced(['marker'])
    await eventually(() => !seen() && !this.files().some((file) => file.includes(name)), {
      deadlineMs: 20_000,
      say: `${name} is gone`,
    })
  }

  /** Whether the log says that this was left out. */
  reportedOf(text: string): boolean {
    return this.logger.lines.some((line) => JSON.stringify(line).includes(text))
  }
}

function specOf(object: object): unknown {
  const { spec, endpoints, ports } = object as { spec?: unknown; endpoints?: unknown; ports?: unknown }
  return spec ?? { endpoints, ports }
}

type Body<K extends LooseRecord['body']['$case']> = Extract<LooseRecord['body'], { $case: K }>['value']

export function clusterRecord(id: string, change: Partial<Body<'cluster'>> = {}, at = id): LooseRecord {
  const value = {
    id,
    index: 2,
    podCidrs: ['10.44.0.0/16'],
    serviceCidrs: ['10.45.0.0/16'],
    globalCidrs: [],
    labels: [],
  }
  return { cluster: at, name: at, body: { $case: 'cluster', value: { ...value, ...change } } }
}

export function exported(
  from: string,
  namespace: string,
  name: string,
  change: Partial<Body<'serviceExport'>> = {},
): LooseRecord {
  const value: Body<'serviceExport'> = {
    uid: `${namespace}-${name}`,
    type: 'ClusterSetIP',
    ports: [{ name: 'http', protocol: 'TCP', port: 80, appProtocol: undefined }],
    sessionAffinity: 'None',
    sessionAffinityTimeoutSeconds: undefined,
    internalTrafficPolicy: undefined,
    trafficDistribution: undefined,
    ipFamilies: ['IPv4'],
    exportedLabels: [],
    exportedAnnotations: [],
    ...change,
  }
  return { cluster: from, namespace, name, body: { $case: 'serviceExport', value } }
}

/** A record of the slice `<service>-1`. */
export function sliceRecord(
  from: string,
  at: string,
  addresses: readonly string[],
  change: Partial<Body<'endpointSlice'>> = {},
): LooseRecord {
  const [namespace = '', service = ''] = at.split('/')
  const rest = { hostname: undefined, nodeName: undefined, zone: undefined, conditions: undefined, zoneHints: [] }
  const value: Body<'endpointSlice'> = {
    service,
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080, appProtocol: undefined }],
    endpoints: addresses.map((address) => ({ addresses: [address], ...rest })),
    ...change,
  }
  return { cluster: from, namespace, name: `${service}-1`, body: { $case: 'endpointSlice', value } }
}

/** The same slice record with a changed body. */
export function mapped(
  record: LooseRecord,
  change: (slice: Body<'endpointSlice'>) => Body<'endpointSlice'>,
): LooseRecord {
  const { body } = record
  return body.$case === 'endpointSlice' ? { ...record, body: { $case: body.$case, value: change(body.value) } } : record
}

export function endpointRecord(from: string, change: Partial<Body<'endpoint'>> = {}): LooseRecord {
  const value: Body<'endpoint'> = {
    cluster: from,
    node: 'gw',
    lane: 0,
    publicKey: Buffer.alloc(32, from).toString('base64'),
    candidates: [{ kind: 'public', address: '192.0.2.20', port: 4500 }],
    capabilities: ['wireguard'],
    ...change,
  }
  return { cluster: from, name: `${from}.${value.node}-lane${value.lane}`, body: { $case: 'endpoint', value } }
}

export function ipRecord(at: string, ips: readonly string[], cluster = ''): LooseRecord {
  const [namespace = '', name = ''] = at.split('/')
  return { cluster, namespace, name, body: { $case: 'clusterSetIp', value: { ips: [...ips] } } }
}

const HONEST: readonly LooseRecord[] = [
  clusterRecord('milano', { index: 1, podCidrs: ['10.42.0.0/16'], serviceCidrs: ['10.43.0.0/16'] }),
  clusterRecord('paris'),
  endpointRecord('paris'),
  exported('milano', 'shop', 'shelf'),
  sliceRecord('milano', 'shop/shelf', ['10.42.1.7']),
  ipRecord('shop/shelf', ['245.0.0.4']),
  exported('paris', 'shop', 'web'),
  sliceRecord('paris', 'shop/web', ['10.44.0.8']),
  ipRecord('shop/web', ['245.0.0.5']),
]
