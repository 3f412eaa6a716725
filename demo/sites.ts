/** Copies the example sites, joins them and runs Sealane's processes, all by the command line a user has. */
import { cp, readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Lab } from './lab.ts'
import { BROKER_ADDRESS, BROKER_PORT, type NodeName, type SiteRow } from './topology.ts'
import { until } from './until.ts'

const ROOT = join(import.meta.dirname, '..')
export const SEALANE = join(ROOT, 'bin', 'sealane')
const EXAMPLES = join(ROOT, 'examples', 'three-sites')

/** Each process answers /readyz and /metrics here, on the loopback of its own namespace. */
const STATUS_PORT = { broker: 9470, agent: 9471, gateway: 9472, routeagent: 9473, dns: 9474 } as const
export type Part = keyof typeof STATUS_PORT

/** 1 for each link that is up. */
export const LINK_UP = 'sealane_gateway_connection_up'

export interface ProcessRow {
  readonly name: string
  readonly namespace: string
  readonly part: Part
  readonly node: string
}

/** Agent and dns run on the first gateway. */
const PARTS: Readonly<Record<NodeName, readonly Part[]>> = {
  gw: ['agent', 'gateway', 'routeagent', 'dns'],
  w1: ['routeagent'],
  gw2: ['gateway', 'routeagent'],
}

export function siteProcesses({ name: site, nodes }: SiteRow): readonly ProcessRow[] {
  return nodes.flatMap((node) =>
    PARTS[node].map((part) => ({ name: `${site}-${node}-${part}`, namespace: `${site}-${node}`, part, node })),
  )
}

/** Nodes of a site that are gateways. */
export function gatewaysOf({ nodes }: SiteRow): readonly NodeName[] {
  return nodes.filter((node) => PARTS[node].includes('gateway'))
}

/** Ports of the pods of db that the checks call beside the service: iperf3, open connections, and one without a server. */
const TOOLS = [
  { name: 'iperf', protocol: 'TCP', port: 5201 },
  { name: 'iperf-udp', protocol: 'UDP', port: 5201 },
  { name: 'calls', protocol: 'TCP', port: 7000 },
  { name: 'closed', protocol: 'UDP', port: 9 },
]

/** A headless Service for these ports, exported, because nothing else of a site answers other sites. */
function toolsOf({ pods, podNet }: SiteRow): string {
  const endpoints = pods.flatMap(({ name, host, node }) =>
    name.startsWith('db-') ? [{ addresses: [`${podNet}.${host}`], nodeName: node, conditions: { ready: true } }] : [],
  )
  const metadata = { name: 'tools', namespace: 'shop' }
  const labels = { 'kubernetes.io/service-name': 'tools' }
  const objects = [
    { apiVersion: 'v1', kind: 'Service', metadata, spec: { clusterIP: 'None', ports: TOOLS } },
    {
      ...{ apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', metadata: { ...metadata, labels } },
      ...{ addressType: 'IPv4', ports: TOOLS, endpoints },
    },
    { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata },
  ]
  // Each document is JSON, which YAML contains.
  return endpoints.length === 0 ? '' : objects.map((object) => JSON.stringify(object)).join('\n---\n')
}

export class Sites {
  readonly #lab: Lab
  constructor(lab: Lab) {
    this.#lab = lab
  }

  siteFile(site: string): string {
    return join(this.#lab.directory, site, 'site.yaml')
  }

  brokerState(): string {
    return join(this.#lab.directory, 'broker-state')
  }

  /** A site's folder as in examples/, with the pod range of this run. */
  async copyExample(site: SiteRow): Promise<void> {
    const folder = join(this.#lab.directory, site.name)
    await cp(join(EXAMPLES, site.name), folder, { recursive: true })
    const objects = join(folder, 'objects')
    const files = [...(await readdir(objects)).map((name) => join(objects, name)), join(folder, 'site.yaml')]
    for (const file of files) {
      await writeFile(file, (await readFile(file, 'utf8')).replaceAll('10.42.', `${site.podNet}.`))
    }
    await writeFile(join(objects, 'tools.yaml'), toolsOf(site))
  }

  async startBroker(): Promise<void> {
    this.#lab.spawn('broker', 'broker', SEALANE, [
      ...['broker', 'serve', '--state', this.brokerState(), '--listen', `0.0.0.0:${BROKER_PORT}`],
      ...['--advertise', `${BROKER_ADDRESS}:${BROKER_PORT}`, '--status-listen', `127.0.0.1:${STATUS_PORT.broker}`],
    ])
    await this.ready({ name: 'broker', namespace: 'broker', part: 'broker', node: '' })
  }

  async join(site: string): Promise<void> {
    const token = await this.sealane('broker', ['token', 'create', '--state', this.brokerState(), '-o', 'json'])
    const { token: text } = JSON.parse(token) as { token: string }
    const args = ['join', '--site', this.siteFile(site), '--token-file', '-']
    await this.#lab.must(`${site}-gw`, SEALANE, args, { input: text })
  }

  start(row: ProcessRow, site: string): void {
    this.#lab.spawn(row.namespace, row.name, SEALANE, [
      ...['up', '--site', this.siteFile(site), '--node', row.node, '--component', row.part],
      ...['--status-listen', `127.0.0.1:${STATUS_PORT[row.part]}`],
    ])
  }

  /**
   * Waits until a process says that it is ready; throws with the end of its log when it has died. Asked at leisure:
   * many start at once, and each question is a process itself.
   */
  async ready(row: ProcessRow): Promise<void> {
    const url = `http://127.0.0.1:${STATUS_PORT[row.part]}/readyz`
    const ask = async (): Promise<unknown> => {
      const daemon = this.#lab.daemons().find((candidate) => candidate.name === row.name)
      if (daemon === undefined || daemon.process.exitCode !== null) {
        throw new Error(`${row.name} ended:\n${await this.#lab.tail(row.name)}`)
      }
      const answer = await this.#lab.exec(row.namespace, 'curl', ['-s', '-m', '2', '-w', '%{http_code}', url])
      return answer.stdout.endsWith('200') ? true : answer.stdout.trim()
    }
    await until(`${row.name} to be ready`, 120_000, ask, 250)
  }

  /**
   * Waits until each gateway of these sites has a link to each of the others'. Asks their metrics: a command that shows
   * connections is a process that takes the time of those that start.
   */
  async lanesUp(sites: readonly SiteRow[]): Promise<void> {
    const up = async (site: SiteRow): Promise<void> => {
      const far = sites.filter((other) => other !== site).flatMap(gatewaysOf).length
      for (const row of siteProcesses(site).filter(({ part }) => part === 'gateway')) {
        const ask = async (): Promise<unknown> => {
          const links = await this.metric(row, LINK_UP)
          return links === far ? true : `${links} of ${far} links are up`
        }
        await until(`the links of ${row.name} to be up`, 120_000, ask, 250)
      }
    }
    await Promise.all(sites.map(up))
  }

  /**
   * Value of a metric summed over its labels, or over those lines with `label` (`type="put"`); 0 where it is absent.
   */
  async metric(row: ProcessRow, name: string, label = ''): Promise<number> {
    const url = `http://127.0.0.1:${STATUS_PORT[row.part]}/metrics`
    const text = await this.#lab.must(row.namespace, 'curl', ['-sf', '-m', '2', url])
    const named = text.split('\n').filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
    const lines = named.filter((line) => line.includes(label))
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0)
  }

  /** Runs the command line in a namespace; throws with what it said. */
  sealane(namespace: string, args: readonly string[]): Promise<string> {
    return this.#lab.must(namespace, SEALANE, args)
  }

  /** `sealane show WHAT -o json` of a site. */
  async show<T>(site: string, what: string): Promise<readonly T[]> {
    const text = await this.sealane(`${site}-gw`, ['show', what, '--site', this.siteFile(site), '-o', 'json'])
    return (JSON.parse(text) as { items: readonly T[] }).items
  }
}
