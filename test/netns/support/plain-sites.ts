/**
 * Sites without Kubernetes as users run them: each node is a namespace in which the command line runs, connected to one
 * router, the internet. The nodes of a site share its folder. The address of a bridge stands for the pods of a node.
 *
 *   milano  gw1 192.0.11.2   gw2 192.0.12.2   gw3 192.0.13.2       pods 10.42.N.0/24
 *   paris   gw1 198.51.11.2                                        pods 10.52.N.0/24
 *   broker  203.0.113.2
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ConnectionStatus, Gateway } from '../../../model/objects.ts'
import { eventually } from '../../support/eventually.ts'
import { type Netns, withNetns } from '../../support/netns.ts'
import { withSockets } from '../../support/wireguard-sockets.ts'

const SEALANE = join(import.meta.dirname, '../../../bin/sealane')
const BROKER = { network: '203.0.113', port: 7443 }
/** The settings of a story that differ from the usual. */
export interface WorldPlan {
  /** Prepares the router before any site joins. */
  readonly prepare?: (internet: Netns) => Promise<unknown>
  /** A second address of the broker, which it also tells its members. */
  readonly secondAddress?: string
}

export interface SitePlan {
  readonly name: string
  /** The first two bytes of its nodes' addresses; `pods` has those of its pods. */
  readonly uplinks: string
  readonly pods: string
  readonly nodes: readonly string[]
  /** `gateways` and other settings of the site, as lines of its site file below `spec`. */
  readonly spec: string
}

/** One machine: its namespace, and the process of Sealane in it. */
export class Machine {
  readonly name: string
  readonly netns: Netns
  readonly address: string
  /** The machine's address among the pods, at which its DNS server listens. */
  readonly podAddress: string
  /** The environment of later processes, added to the test's own. */
  environment: NodeJS.ProcessEnv = {}
  /** The program of later processes: Sealane of this checkout, or another release. */
  program = SEALANE
  readonly #internet: Netns
  readonly #folder: string
  #process: ChildProcess | undefined
  #said = ''

  constructor(init: {
    name: string
    address: string
    podAddress: string
    netns: Netns
    internet: Netns
    folder: string
  }) {
    this.name = init.name
    this.address = init.address
    this.podAddress = init.podAddress
    this.netns = init.netns
    this.#internet = init.internet
    this.#folder = init.folder
    mkdirSync(this.#folder, { recursive: true })
  }

  async wire(): Promise<void> {
    const { netns, address, podAddress } = this
    const router = address.replace(/\d+$/, '1')
    await ip(netns, `link add uplink type veth peer name ${this.#port} netns ${this.#internet.name}`)
    await ip(this.#internet, `address add ${router}/24 dev ${this.#port}`)
    await ip(this.#internet, `link set ${this.#port} up`)
    await ip(netns, `address add ${address}/24 dev uplink`)
    await ip(netns, 'link set uplink up')
    await ip(netns, `route add default via ${router}`)
    if (podAddress === '') return
    await ip(netns, 'link add cni0 address 02:00:00:00:00:01 type bridge')
    await ip(netns, `address add ${podAddress}/24 dev cni0`)
    await ip(netns, 'link set cni0 up')
  }

  run(args: readonly string[], input?: string): Promise<string> {
    return this.netns.exec(SEALANE, args, input === undefined ? {} : { input })
  }

  start(args: readonly string[]): void {
    const command = withSockets(this.#folder, [this.program, ...args])
    const child = spawn('ip', ['netns', 'exec', this.netns.name, ...command], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...this.environment },
    })
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (data: Buffer) => {
        this.#said += data.toString()
        if (process.env['SEALANE_TEST_LOG'] === '1') process.stderr.write(data)
      })
    }
    this.#process = child
  }

  /** The output of its process. */
  get said(): string {
    return this.#said
  }

  /** Loses the machine as a power failure does: it sends no packet and ends no connection. */
  async lose(): Promise<void> {
    await this.cut()
    const pids = await this.#internet.exec('ip', ['netns', 'pids', this.netns.name])
    for (const pid of pids.split('\n').filter((line) => line !== '')) killed(Number(pid))
    await this.ended()
  }

  /** No packet passes to it or from it, and its processes go on. */
  async cut(): Promise<void> {
    await ip(this.#internet, `link set ${this.#port} down`)
  }

  async reconnect(): Promise<void> {
    await ip(this.#internet, `link set ${this.#port} up`)
  }

  /** The exit code; undefined after a signal. */
  async ended(): Promise<number | undefined> {
    const child = this.#process
    if (child === undefined) return undefined
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    return child.exitCode ?? undefined
  }

  async stop(): Promise<void> {
    // A stopped process would not handle SIGTERM.
    this.signal('SIGCONT')
    this.signal('SIGTERM')
    await this.ended()
  }

  /** Sends the signal to the process of Sealane itself, which ip, unshare and the launcher have become by exec. */
  signal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal)
  }

  get pid(): number {
    const pid = this.#process?.pid
    if (pid === undefined) throw new Error(`nothing runs on ${this.name}`)
    return pid
  }

  async pings(address: string): Promise<boolean> {
    const args = ['-c', '1', '-W', '1', '-I', this.podAddress, address]
    return (await this.netns.tryExec('ping', args)).code === 0
  }

  /** The answer of the server at `address` for a name: `status answer answer …`. */
  async dig(address: string, name: string): Promise<string> {
    const { stdout } = await this.netns.tryExec('dig', [`@${address}`, '+tries=1', '+time=1', 'A', name])
    const status = /status: (\w+)/.exec(stdout)?.[1] ?? 'silent'
    const answers = [...stdout.matchAll(/\sIN\s+A\s+(\S+)$/gm)].map((match) => match[1])
    return [status, ...answers].join(' ')
  }

  get #port(): string {
    return `p${this.address.replaceAll('.', '-')}`
  }
}

/** A site whose nodes share one folder. */
export class PlainSite {
  readonly plan: SitePlan
  readonly folder: string
  readonly machines: ReadonlyMap<string, Machine>

  constructor(init: { plan: SitePlan; folder: string; machines: readonly Machine[] }) {
    this.plan = init.plan
    this.folder = init.folder
    this.machines = new Map(init.machines.map((machine) => [machine.name, machine]))
    this.#write()
  }

  get file(): string {
    return join(this.folder, 'site.yaml')
  }

  machine(name: string): Machine {
    const machine = this.machines.get(name)
    if (machine === undefined) throw new Error(`no machine ${name}`)
    return machine
  }

  up(name: string): void {
    this.machine(name).start(['up', '--site', this.file, '--node', name])
  }

  /** Exports a Service whose endpoint is the machine's address among the pods. */
  export(service: string, machine: Pick<Machine, 'name' | 'podAddress'>, ready = true): void {
    const meta = `{ name: ${service}, namespace: shop }`
    const slice = `{ name: ${service}-1, namespace: shop, labels: { kubernetes.io/service-name: ${service} } }`
    const endpoint = `{ addresses: [${machine.podAddress}], nodeName: ${machine.name}, conditions: { ready: ${ready} } }`
    const documents = [
      `apiVersion: v1\nkind: Service\nmetadata: ${meta}\nspec: { clusterIP: None, ports: [{ port: 80 }] }`,
      `apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: ${slice}\naddressType: IPv4\n` +
        `ports: [{ port: 80, protocol: TCP }]\nendpoints: [${endpoint}]`,
      `apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: ${meta}`,
    ]
    this.write(service, documents)
  }

  /** Writes a file of the site's own objects; undefined removes it. */
  write(name: string, documents: readonly string[] | undefined): void {
    const file = join(this.folder, 'objects', `${name}.yaml`)
    if (documents === undefined) rmSync(file, { force: true })
    else writeFileSync(file, `${documents.join('\n---\n')}\n`)
  }

  has(file: string): boolean {
    return existsSync(join(this.folder, 'state', file))
  }

  /** The status that the gateway of a node reports. */
  gateway(node: string): NonNullable<Gateway['status']> | undefined {
    const file = join(this.folder, 'state', 'objects', 'Gateway', '_', `${node}@status.json`)
    if (!existsSync(file)) return undefined
    return (JSON.parse(readFileSync(file, 'utf8')) as { status: NonNullable<Gateway['status']> }).status
  }

  /** The lane numbers of a node, and how many of its links are up: `0 (1 up)`. */
  lanes(node: string): string {
    const { lanes = [], connections = [] } = this.gateway(node) ?? {}
    const up = connections.filter(({ state }: ConnectionStatus) => state === 'up').length
    return `${lanes.map(({ lane }) => lane).join(' ')} (${up} up)`
  }

  said(): string {
    return [...this.machines.values()].map(({ name, said }) => `${name}:\n${said.slice(-3000)}`).join('\n')
  }

  /** A join asks for an address of dns. Most stories need none, and then their machines run no dns. */
  writeFile(dns: string): void {
    const { name, pods, spec } = this.plan
    const header = `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: { name: ${name} }\nspec:\n`
    const more = spec.includes('dns:') ? '' : dns
    // These stories ping the machines' own addresses among the pods, which no export opens.
    writeFileSync(this.file, `${header}  podCIDRs: [${pods}.0.0/16]\n  exposure: pods\n${more}${spec}`)
  }

  #write(): void {
    mkdirSync(join(this.folder, 'objects'), { recursive: true })
    this.writeFile("  dns: { listen: ['127.0.0.1:53'] }\n")
    const nodes = [...this.machines.values()].map(({ name: node, address, podAddress }) => {
      const range = podAddress.replace(/\d+$/, '0/24')
      const status = `{ addresses: [{ type: InternalIP, address: ${address} }] }`
      return `apiVersion: v1\nkind: Node\nmetadata: { name: ${node} }\nspec: { podCIDRs: [${range}] }\nstatus: ${status}`
    })
    this.write('nodes', nodes)
    this.write('shop', ['apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }'])
  }
}

/** The parts of the world that belong to no site. */
export interface PlainWorld {
  /** The router, which forwards every packet between two machines. */
  readonly internet: Netns
  readonly broker: Machine
  /** Starts the broker's process after it has ended. */
  /** With flags besides those of its first start. */
  readonly startBroker: (flags?: readonly string[]) => void
}

/** Builds the world in `folder` with a running broker and sites that have joined, and removes it after `story`. */
export async function withPlainSites<T>(
  folder: string,
  plans: readonly SitePlan[],
  story: (sites: readonly PlainSite[], world: PlainWorld) => Promise<T>,
  { prepare, secondAddress }: WorldPlan = {},
): Promise<T> {
  const wanted = plans.flatMap((plan) => plan.nodes.map((node) => ({ plan, node })))
  return withMany(wanted.length + 2, [], async ([internet, hub, ...rest]) => {
    if (internet === undefined || hub === undefined) throw new Error('no namespaces')
    await internet.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
    const machineOf = (name: string, netns: Netns, network: string, podAddress: string): Machine =>
      new Machine({
        ...{ name, netns, internet, podAddress, address: `${network}.2` },
        folder: join(folder, 'wireguard', network),
      })
    const broker = machineOf('broker', hub, BROKER.network, '')
    const machines = wanted.map(({ plan, node }, i) => {
      const number = plan.nodes.indexOf(node) + 1
      return machineOf(node, rest[i]!, `${plan.uplinks}.${10 + number}`, `${plan.pods}.${number}.1`)
    })
    const all = [broker, ...machines]
    for (const machine of all) await machine.wire()
    if (secondAddress !== undefined) await ip(hub, `address add ${secondAddress}/24 dev uplink`)
    await prepare?.(internet)
    const sites = plans.map((plan) => {
      const own = machines.filter((_, i) => wanted[i]?.plan === plan)
      return new PlainSite({ plan, folder: join(folder, plan.name), machines: own })
    })
    const state = join(folder, 'broker')
    const addresses = [broker.address, ...(secondAddress === undefined ? [] : [secondAddress])]
    const advertise = addresses.flatMap((address) => ['--advertise', `${address}:${BROKER.port}`])
    const serve = ['broker', 'serve', '--state', state, '--listen', `0.0.0.0:${BROKER.port}`, ...advertise]
    const startBroker = (flags: readonly string[] = []): void => broker.start([...serve, ...flags])
    try {
      startBroker()
      await joinAll(broker, sites, state)
      return await story(sites, { internet, broker, startBroker })
    } finally {
      await Promise.all(all.map((machine) => machine.stop()))
    }
  })
}

/** A child of one that was killed before may have ended by itself since it was listed. */
function killed(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

async function joinAll(broker: Machine, sites: readonly PlainSite[], state: string): Promise<void> {
  for (const site of sites) {
    const token = await eventually(() => broker.run(['token', 'create', '--state', state, '-o', 'json']), {
      deadlineMs: 30_000,
      say: 'a token',
    })
    const { token: text } = JSON.parse(token) as { token: string }
    const first = site.machine(site.plan.nodes[0] ?? '')
    await eventually(() => first.run(['join', '--site', site.file, '--token-file', '-'], text), {
      deadlineMs: 30_000,
      intervalMs: 500,
      say: `${site.plan.name} joins`,
    })
    site.writeFile('')
  }
}

function withMany<T>(left: number, made: readonly Netns[], story: (made: readonly Netns[]) => Promise<T>): Promise<T> {
  if (left === 0) return story(made)
  return withNetns((netns) => withMany(left - 1, [...made, netns], story))
}

function ip(ns: Netns, text: string): Promise<string> {
  return ns.exec('ip', text.split(' '))
}
