/**
 * Two sites on nodes as Calico sets them up: a block of addresses for each node, which is in no Node object, a /32
 * route for each pod, and rules that masquerade (before priority 100) or drop invalid packets. Both sites have the same
 * pod CIDR.
 *
 *   pod 10.42.5.7 ── gw 192.0.2.10 ─┐
 *                                    ├─ internet ── gw 198.51.100.20 ── pod 10.42.8.7   (paris)
 *   pod 10.42.6.7 ── worker 192.0.3.11 ┘                                       (milano)
 *
 * Only Sealane has routes between gw and worker: packets that table 7310 does not route do not arrive. Pods of paris
 * are at 244.1.0.0/16, those of milano at 244.0.0.0/16, and 245.0.0.7 leads to the pod of paris.
 */
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Exposure } from '../../../model/access/access.ts'
import type { KubeObject, RouteAgent } from '../../../model/objects.ts'
import { POD_PROGRAMS } from '../../gateway/support/pod-programs.ts'
import { eventually } from '../../support/eventually.ts'
import { type Netns, withNetns } from '../../support/netns.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { NodeProcess } from './node-process.ts'
import { cluster, membership, node, serviceImport, slice } from './site.ts'

/** The addresses of a node; its pods are named by the first three numbers of its block. */
interface Plan {
  readonly address: string
  readonly router: string
  readonly block: string
}

const GW: Plan = { address: '192.0.2.10', router: '192.0.2.1', block: '10.42.5' }
const WORKER: Plan = { address: '192.0.3.11', router: '192.0.3.1', block: '10.42.6' }
const PARIS: Plan = { address: '198.51.100.20', router: '198.51.100.1', block: '10.42.8' }

export const ip = (ns: Netns, text: string): Promise<string> => ns.exec('ip', text.split(' '))

const CNI = `table ip cni {
  chain leaving {
    type nat hook postrouting priority 90;
    ip saddr 10.42.0.0/16 ip daddr != 10.42.0.0/16 masquerade
  }
  chain passing {
    type filter hook forward priority 0;
    ct state invalid drop
  }
}`

async function wire(internet: Netns, ns: Netns, pod: Netns, { address, router, block }: Plan): Promise<void> {
  const port = `to-${block}`
  await ip(ns, `link add uplink type veth peer name ${port} netns ${internet.name}`)
  await ip(internet, `address add ${router}/24 dev ${port}`)
  await ip(internet, `link set ${port} up`)
  await ip(ns, `address add ${address}/24 dev uplink`)
  await ip(ns, 'link set uplink up')
  await ip(ns, `route add default via ${router}`)
  await ip(ns, `route add blackhole ${block}.0/26 proto 80`)
  await ip(ns, `link add cali0 type veth peer name eth0 netns ${pod.name}`)
  await ip(ns, 'link set cali0 up')
  await ip(ns, `route add ${block}.7/32 dev cali0 scope link`)
  await ns.exec('sysctl', ['-qw', 'net.ipv4.conf.cali0.proxy_arp=1', 'net.ipv4.conf.cali0.rp_filter=1'])
  await ns.exec('nft', ['-f', '-'], { input: CNI })
  await ip(pod, `address add ${block}.7/32 dev eth0`)
  await ip(pod, 'link set eth0 up')
  await ip(pod, 'route add 169.254.1.1 dev eth0 scope link')
  await ip(pod, 'route add default via 169.254.1.1 dev eth0')
}

const MILANO_CLUSTER = cluster('milano', 1, '244.0.0.0/16')
const PARIS_CLUSTER = cluster('paris', 2, '244.1.0.0/16')
const PORTS = [{ name: 'http', protocol: 'TCP', port: 8080 }] as const

function objects(self: string, { exposure, objects: more = [] }: CalicoInit): KubeObject[] {
  const base = membership()
  const stated = exposure === undefined || self === 'paris' ? {} : { exposure }
  return [
    { ...base, spec: { ...base.spec, clusterId: self, ...stated } },
    MILANO_CLUSTER,
    PARIS_CLUSTER,
    ...(self === 'paris'
      ? [node('gw', PARIS.address)]
      : [
          ...[node('gw', GW.address), node('worker', WORKER.address), ...more],
          serviceImport('web', '245.0.0.7', { ports: [{ name: 'http', protocol: 'TCP', port: 8080 }] }),
          slice('web', 'paris', ['244.1.8.7'], PORTS),
        ]),
  ]
}

const isEndpointOf =
  (id: string) =>
  (object: KubeObject): boolean =>
    object.kind === 'Endpoint' && object.spec.cluster === id
const isStateOf =
  (name: string) =>
  (object: KubeObject): boolean =>
    isEndpointOf('milano')(object) || (['Gateway', 'RouteAgent'].includes(object.kind) && object.metadata.name === name)

export function reported(process: NodeProcess, name: string): RouteAgent['status'] {
  return (process.get('RouteAgent', name) as RouteAgent | undefined)?.status
}

async function serve(pod: Netns): Promise<void> {
  const server = pod.spawn(process.execPath, ['-e', POD_PROGRAMS.server])
  await new Promise((resolve) => server.stdout?.once('data', resolve))
}

type Seven = readonly [Netns, Netns, Netns, Netns, Netns, Netns, Netns]

/** How milano differs from a site that exposes all pods. */
export interface CalicoInit {
  readonly exposure?: Exposure
  /** NodeProcessInit.failClosed */
  readonly failClosed?: boolean
  readonly objects?: readonly KubeObject[]
}

export interface CalicoSites {
  /** The namespaces of milano: its gateway node and its worker. */
  readonly gw: Netns
  readonly worker: Netns
  readonly gwPod: Netns
  readonly workerPod: Netns
  readonly parisPod: Netns
  readonly gwProcess: NodeProcess
  readonly workerProcess: NodeProcess
  /** The process of the node of paris, which is also called gw. */
  readonly parisProcess: NodeProcess
  /** Starts the processes of gw, or of the worker, once more after their end. */
  readonly startGw: () => NodeProcess
  readonly startWorker: () => NodeProcess
}

/**
 * Builds the sites, waits until the lane is up and all nodes of milano have reported their ranges, and removes them
 * after `story`.
 */
export async function withCalicoSites(
  t: Test,
  story: (sites: CalicoSites) => Promise<void>,
  init: CalicoInit = {},
): Promise<void> {
  await withSpaces(7, [], async ([internet, gw, gwPod, worker, workerPod, paris, parisPod]) => {
    await internet.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
    await wire(internet, gw, gwPod, GW)
    await wire(internet, worker, workerPod, WORKER)
    await wire(internet, paris, parisPod, PARIS)
    const processes = startNodes(t, { gw, worker, paris }, init)
    await Promise.all([gwPod, workerPod, parisPod].map(serve))
    await untilReported(processes)
    await story({ gw, worker, gwPod, workerPod, parisPod, ...processes })
  })
}

type Processes = Pick<CalicoSites, 'gwProcess' | 'workerProcess' | 'parisProcess' | 'startGw' | 'startWorker'>

function startNodes(
  t: Test,
  { gw, worker, paris }: Readonly<Record<'gw' | 'worker' | 'paris', Netns>>,
  init: CalicoInit,
): Processes {
  const folder = temporaryFolder(t)
  const start = (name: string, netns: Netns, file: string, address?: string): NodeProcess => {
    const lanes = address === undefined ? [] : [{ lane: 0, publicAddress: address }]
    const closed = init.failClosed === undefined ? {} : { failClosed: init.failClosed }
    const process = new NodeProcess({ node: name, netns, folder: join(folder, file), lanes, ...closed })
    t.teardown(() => process.stop())
    process.put(...objects(file === 'paris' ? 'paris' : 'milano', init))
    return process
  }
  let gwProcess: NodeProcess
  let workerProcess: NodeProcess | undefined
  const parisProcess = start('gw', paris, 'paris', PARIS.address)
  const startGw = (): NodeProcess => {
    gwProcess = start('gw', gw, 'gw', GW.address)
    gwProcess.report(parisProcess, isEndpointOf('milano'))
    parisProcess.report(gwProcess, isEndpointOf('paris'))
    if (workerProcess !== undefined) connect(gwProcess, workerProcess)
    return gwProcess
  }
  const startWorker = (): NodeProcess => {
    workerProcess = start('worker', worker, 'worker')
    parisProcess.report(workerProcess, isEndpointOf('paris'))
    connect(gwProcess, workerProcess)
    return workerProcess
  }
  const first = startGw()
  const started = startWorker()
  return { gwProcess: first, workerProcess: started, parisProcess, startGw, startWorker }
}

function connect(gw: NodeProcess, worker: NodeProcess): void {
  gw.report(worker, isStateOf('gw'))
  worker.report(gw, isStateOf('worker'))
}

async function untilReported({
  gwProcess,
  workerProcess,
  parisProcess,
}: Omit<Processes, 'startGw' | 'startWorker'>): Promise<void> {
  const say = (): string => [gwProcess, workerProcess, parisProcess].map((process) => process.errors).join('\n')
  const up = (process: NodeProcess): boolean =>
    JSON.stringify(process.get('Gateway', 'gw') ?? '').includes('"state":"up"')
  await eventually(() => up(gwProcess) && up(parisProcess), { deadlineMs: 30_000, say: `lane up: ${say()}` })
  const reportedAll = (): boolean =>
    [reported(gwProcess, 'gw'), reported(workerProcess, 'worker')].every(
      (status) => (status?.podRanges ?? []).length > 0,
    )
  await eventually(reportedAll, { deadlineMs: 30_000, say: `ranges told: ${say()}` })
}

function withSpaces(count: number, spaces: readonly Netns[], story: (spaces: Seven) => Promise<void>): Promise<void> {
  if (count === 0) return story(spaces as unknown as Seven)
  return withNetns((ns) => withSpaces(count - 1, [...spaces, ns], story))
}
