/**
 * A site in a story: its folder, its agent and its DNS server, each with its own view of the folder as in production.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import type { Test } from 'tap'
import { agentConfig } from '../../agent/loop/config.ts'
import { type AgentDeps, runAgent } from '../../agent/main.ts'
import { FileApi } from '../../kubeapi/files/file-api.ts'
import { readSiteFile } from '../../kubeapi/files/site-file.ts'
import { dnsConfig } from '../../dns/config/dns-config.ts'
import { runDns } from '../../dns/main.ts'
import type { ConnectionState } from '../../model/objects.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { type ComponentDeps, StatusBoard } from '../../runtime/component.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { serveStatus } from '../../runtime/http/http-status.ts'
import { formatHostPort } from '../../runtime/flag-values.ts'
import { showImport, showSlice } from '../agent/site.ts'
import { runCli } from '../cli/run-cli.ts'
import { SiteFolder } from '../cli/site-folder.ts'
import { askUdp } from '../dns/dns-server.ts'
import { TYPE, query } from '../dns/wire.ts'
import { eventually } from '../support/eventually.ts'
import { endpointObject } from '../support/objects/cluster-objects.ts'
import { connectionsTo, gatewayObject } from '../support/objects/node-objects.ts'

interface Part {
  readonly deps: ComponentDeps & { readonly logger: CapturingLogger }
  stop(): Promise<void>
}

export class StorySite {
  readonly id: string
  readonly folder: SiteFolder
  #agent: Part | undefined
  #dns: Part | undefined
  #dnsPort = 0
  readonly #reader: FileApi

  /** Joins by the command line, with a token from that broker; its pod CIDRs are 10.42.0.0/16 or these. */
  static async join(
    t: Test,
    id: string,
    broker: { token(): Promise<string> },
    podCIDRs: readonly string[] = ['10.42.0.0/16'],
  ): Promise<StorySite> {
    const site = StorySite.make(t, id, podCIDRs)
    const joined = await runCli(['join', '--site', site.folder.file, '--token', await broker.token()])
    t.equal(joined.code, 0, joined.stdout + joined.stderr)
    // A join needs the Node of each gateway. Stories whose sites have no nodes must not look for their parts.
    site.folder.remove('objects/nodes.yaml')
    return site
  }

  /** A site that has not joined yet. */
  static make(t: Test, id: string, podCIDRs: readonly string[]): StorySite {
    const site = new StorySite(t, id)
    const { folder } = site
    folder.write('site.yaml', folder.read('site.yaml').replace('[10.42.0.0/16]', JSON.stringify(podCIDRs)))
    return site
  }

  private constructor(t: Test, id: string) {
    this.id = id
    this.folder = new SiteFolder(t, id)
    this.#reader = this.#open()
    for (const kind of ['ServiceImport', 'EndpointSlice', 'ServiceExport', 'Cluster', 'Endpoint'] as const)
      this.#reader.cache(kind)
    t.teardown(async () => {
      await this.stop()
      await this.#reader.close()
    })
  }

  /** `checkBackend` runs the checks of the site's own backends; without it, none runs. */
  async start(init: Pick<AgentDeps, 'checkBackend'> = {}): Promise<void> {
    const { podCIDRs, serviceCIDRs, labels } = await readSiteFile(this.folder.file)
    const facts = { podCIDRs, serviceCIDRs, labels, version: '0' }
    this.#agent = this.#run('agent', (deps, api, signal) =>
      runAgent({ ...deps, ...init, api }, agentConfig(this.folder.path('state'), { facts }), signal),
    )
    const listen = { clusterId: this.id, listen: ['127.0.0.1:0'] }
    this.#dns = this.#run('dns', (deps, api, signal) => {
      const onListening = (at: string): void => void (this.#dnsPort = Number(at.split(':')[1]))
      return runDns({ ...deps, api, onListening }, dnsConfig(listen), signal)
    })
    const ready = (part: Part): boolean => part.deps.status.notReady().length === 0
    await eventually(() => ready(this.agent) && ready(this.dns), { deadlineMs: 15_000, say: `${this.id} is ready` })
  }

  async stop(): Promise<void> {
    await Promise.all([this.#agent?.stop(), this.#dns?.stop()])
    this.#agent = undefined
    this.#dns = undefined
  }

  get agent(): Part {
    return this.#agent ?? notRunning()
  }

  get dns(): Part {
    return this.#dns ?? notRunning()
  }

  /** Writes a file of the site's objects; `---` separates several documents. */
  write(file: string, text: string): void {
    mkdirSync(this.folder.path('objects'), { recursive: true })
    writeFileSync(this.folder.path(`objects/${file}`), text)
  }

  remove(file: string): void {
    rmSync(this.folder.path(`objects/${file}`))
  }

  /** Reports the tunnel as the site's gateway would. */
  async tunnel(cluster: string, state: ConnectionState): Promise<void> {
    await this.#reader.apply(gatewayObject('gw'))
    await this.#reader.applyStatus(gatewayObject('gw', { connections: connectionsTo({ [cluster]: state }) }))
  }

  /** Reports several tunnels like that, with the present time as heartbeat. */
  async tunnels(states: Readonly<Record<string, ConnectionState>>): Promise<void> {
    const heartbeatTime = new Date().toISOString()
    await this.#reader.apply(gatewayObject('gw'))
    await this.#reader.applyStatus(
      gatewayObject('gw', { version: '0.1.0', heartbeatTime, connections: connectionsTo(states) }),
    )
  }

  /** The address of its agent's status page, as host:port. */
  async statusPage(t: Test): Promise<string> {
    const { deps } = this.agent
    deps.status.report('part', () => 'agent')
    deps.status.report('version', () => '0.1.0')
    const server = await serveStatus({ ...deps, listen: ':0' })
    t.teardown(() => server.close())
    return formatHostPort(server.address)
  }

  /** Publishes a gateway of this site as its own process would. */
  async gateway(publicKey: string): Promise<void> {
    await this.#reader.apply(endpointObject({ cluster: this.id, publicKey }))
  }

  /** What this site knows about another one: `Cluster`, `Endpoint` and `ServiceImport` objects, as lines. */
  knownOf(cluster: string): string[] {
    const clusters = this.#reader.cache('Cluster').list()
    const endpoints = this.#reader.cache('Endpoint').list()
    const slices = this.#reader.cache('EndpointSlice').list()
    const label = 'multicluster.kubernetes.io/source-cluster'
    return [
      ...clusters.filter(({ spec }) => spec.id === cluster).map(() => 'Cluster'),
      ...endpoints.filter(({ spec }) => spec.cluster === cluster).map(() => 'Endpoint'),
      ...slices.filter(({ metadata }) => metadata.labels?.[label] === cluster).map(() => 'EndpointSlice'),
    ]
  }

  /** Imported services and their slices, as lines. */
  imports(): string[] {
    const slices = this.#reader.cache('EndpointSlice').list()
    const imported = slices.filter(({ metadata }) => metadata.labels?.['multicluster.kubernetes.io/source-cluster'])
    return [...this.#reader.cache('ServiceImport').list().map(showImport).sort(), ...imported.map(showSlice).sort()]
  }

  /** The names of the services that the broker has accepted from this site, by the agent's report so far. */
  exported(): string[] {
    const rows = this.#reader.cache('ServiceExport').list()
    const ready = rows.filter(({ status }) =>
      status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True'),
    )
    return ready.map(({ metadata }) => metadata.name).sort()
  }

  /** The conditions of one export, as `Valid=True/Valid Ready=…`. */
  conditions(name: string): string {
    const found = this.#reader.cache('ServiceExport').get(name, 'shop')?.status?.conditions ?? []
    return found.map(({ type, status, reason }) => `${type}=${status}/${reason}`).join(' ')
  }

  /** The message of a condition of one export; undefined if it has none of that type and status. */
  message(name: string, type: string, status: 'True' | 'False'): string | undefined {
    const found = this.#reader.cache('ServiceExport').get(name, 'shop')?.status?.conditions ?? []
    return found.find((one) => one.type === type && one.status === status)?.message
  }

  /** The sorted data of the answers, or the response code if there are none. */
  async dig(name: string, type: keyof typeof TYPE = 'A'): Promise<string> {
    const { answers, flags } = await askUdp(this.#dnsPort, query(name, { type: TYPE[type] }))
    return (
      answers
        .map(({ data }) => data)
        .sort()
        .join(' ') ||
      (flags.split(' ').at(-1) ?? '')
    )
  }

  /** The sum of one metric of the agent over all series that have the label. */
  async count(metric: string, label: string): Promise<number> {
    const lines = (await this.agent.deps.metrics.text()).split('\n')
    const series = lines.filter((line) => line.startsWith(`${metric}{`) && line.includes(label))
    return series.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
  }

  #open(): FileApi {
    const init = { objects: this.folder.path('objects'), state: this.folder.path('state') }
    return new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
  }

  #run(name: string, work: (deps: ComponentDeps, api: FileApi, signal: AbortSignal) => Promise<void>): Part {
    const api = this.#open()
    const stopping = new AbortController()
    const deps = {
      clock: new SystemClock(),
      logger: new CapturingLogger(),
      metrics: createMetrics(name),
      status: new StatusBoard(),
    }
    const done = work(deps, api, stopping.signal)
    return {
      deps,
      async stop() {
        stopping.abort()
        await done
        await api.close()
      },
    }
  }
}

function notRunning(): never {
  throw new Error('this site is not running')
}
