/**
 * Two sites of the same pod addresses, each with two gateway nodes and a worker with a pod, on the real drivers:
 *
 *   pod ── worker ══ overlay ══ gw0 ─┐             ┌─ gw0 ══ overlay ══ worker ── pod
 *   10.42.6.7            ╚═════ gw1 ─┴─ internet ──┴─ gw1 ═════╝              10.42.6.7
 *
 * From milano, the pod of paris is 244.1.6.7; from paris, that of milano is 244.0.6.7. The gateway nodes may have pods,
 * too, and the sites may have other addresses (SitesInit). Each node has an uplink of its own to one router, the
 * internet. Reports of a node reach the other nodes of its site outside this network, as if an API server were always
 * reachable; Endpoints reach the other site in the same way.
 */
import { join } from 'node:path'
import { ANNOTATION_ROTATE_KEYS, LABEL_DRAIN } from '../../model/lanes/gateway-node.ts'
import type { Cluster, KubeObject, Node } from '../../model/objects.ts'
import { NodeProcess } from '../routeagent/support/node-process.ts'
import { cluster, dualStack, dualStackNode, membership, node } from '../routeagent/support/site.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, withNetns } from '../support/netns.ts'

export const SITES = ['milano', 'paris'] as const
export type SiteName = (typeof SITES)[number]

/** The addresses of the pods as seen from the other site. */
export const POD_ADDRESSES: Readonly<Record<SiteName, string>> = { milano: '244.0.6.7', paris: '244.1.6.7' }
const NETWORKS: Readonly<Record<SiteName, string>> = { milano: '192.0', paris: '198.51' }
/** The third number of a node's network. */
const NODES: Readonly<Record<string, number>> = { gw0: 10, gw1: 11, worker: 12 }
/** The third number of the network of its pods, of both families. */
const POD_NETWORKS: Readonly<Record<string, number>> = { gw0: 4, gw1: 5, worker: 6 }

/** The pod addresses of both sites: the first two numbers of an IPv4 address, the first two groups of an IPv6 one. */
export interface SiteAddresses {
  readonly pods: Readonly<Record<SiteName, string>>
  /** The addresses as the other site sees them; they are the same if nothing is translated. */
  readonly known: Readonly<Record<SiteName, string>>
  /** Absent: the sites have no IPv6. */
  readonly pods6?: Readonly<Record<SiteName, string>>
}

export const OVERLAPPING: SiteAddresses = {
  pods: { milano: '10.42', paris: '10.42' },
  known: { milano: '244.0', paris: '244.1' },
}
const FLAT_PODS = { milano: '10.42', paris: '10.44' }
export const FLAT_DUAL_STACK: SiteAddresses = {
  pods: FLAT_PODS,
  known: FLAT_PODS,
  pods6: { milano: 'fd42:1', paris: 'fd42:2' },
}

export interface SitesInit {
  /** Absent: OVERLAPPING. */
  readonly addresses?: SiteAddresses
  /** Whether each gateway node has a pod, like the worker. */
  readonly podsOnGateways?: boolean
  /** The nodes of both sites. Absent: gw0, gw1 and the worker. */
  readonly names?: readonly string[]
}

/** One node, which can be cut off from everything. */
export class SiteNode {
  readonly site: SiteName
  readonly name: string
  readonly netns: Netns
  readonly #internet: Netns
  process: NodeProcess | undefined
  /** The node's pod, if it has one. */
  pod: Netns | undefined

  constructor(init: { site: SiteName; name: string; netns: Netns; internet: Netns }) {
    this.site = init.site
    this.name = init.name
    this.netns = init.netns
    this.#internet = init.internet
  }

  get network(): string {
    return `${NETWORKS[this.site]}.${NODES[this.name]}`
  }

  get address(): string {
    return `${this.network}.2`
  }

  /** The third number of the network of its pods. */
  get podNetwork(): number {
    return POD_NETWORKS[this.name] ?? NaN
  }

  get port(): string {
    return `${this.site}-${this.name}`
  }

  /** Cuts the node off as a power failure does: it sends no packet and ends no connection. */
  async cutOff(): Promise<void> {
    this.process?.pause()
    await this.#internet.exec('ip', ['link', 'set', this.port, 'down'])
  }

  async bringBack(): Promise<void> {
    await this.#internet.exec('ip', ['link', 'set', this.port, 'up'])
    this.process?.resume()
  }

  async wire(): Promise<void> {
    const { netns, network, address, port } = this
    await ip(netns, `link add uplink type veth peer name ${port} netns ${this.#internet.name}`)
    await ip(this.#internet, `address add ${network}.1/24 dev ${port}`)
    await ip(this.#internet, `link set ${port} up`)
    await ip(netns, `address add ${address}/24 dev uplink`)
    await ip(netns, 'link set uplink up')
    await ip(netns, `route add default via ${network}.1`)
  }
}

export interface TwoSites {
  readonly internet: Netns
  readonly nodes: readonly SiteNode[]
  /** The pods of the workers; SiteNode.pod has those of other nodes. */
  readonly pods: Readonly<Record<SiteName, Netns>>
  readonly gateways: (site: SiteName) => readonly SiteNode[]
  /** Puts the label of a drain on the Node, or takes it off. */
  readonly drain: (gateway: SiteNode, on: boolean) => void
  /** The exchange of reports between the sites. While it is away, reports wait; they arrive when it is back. */
  readonly broker: Broker
  /** Requests a new key of the gateway; a different request text is another rotation. */
  readonly rotate: (gateway: SiteNode, request: string) => void
  /** What the processes wrote on standard error. */
  readonly errors: () => string
}

/** Carries reports between the sites while it is up. */
class Broker {
  #waiting: (() => void)[] | undefined

  goAway(): void {
    this.#waiting ??= []
  }

  comeBack(): void {
    const waiting = this.#waiting ?? []
    this.#waiting = undefined
    for (const pass of waiting) pass()
  }

  pass(action: () => void): void {
    if (this.#waiting === undefined) action()
    else this.#waiting.push(action)
  }
}

/** Builds the sites in `folder`, waits until each gateway has all its links up, and removes them after `story`. */
export async function withTwoSites<T>(
  folder: string,
  story: (sites: TwoSites) => Promise<T>,
  { addresses = OVERLAPPING, podsOnGateways = false, names = Object.keys(NODES) }: SitesInit = {},
): Promise<T> {
  return withNetns(async (internet) => {
    await internet.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
    return withNodes(
      SITES.flatMap((site) => names.map((name) => [site, name] as const)),
      internet,
      [],
      async (nodes) => {
        for (const one of nodes) await one.wire()
        const withPod = nodes.filter((one) => podsOnGateways || !isGateway(one))
        return withPods(withPod, addresses, async () => {
          const gateways = (site: SiteName): SiteNode[] => nodes.filter((one) => one.site === site && isGateway(one))
          const drain = (gateway: SiteNode, on: boolean): void => {
            for (const one of nodes.filter(({ site }) => site === gateway.site))
              one.process?.put(nodeObject(gateway, { addresses, drains: on }))
          }
          const rotate = (gateway: SiteNode, request: string): void => {
            const { metadata, ...rest } = nodeObject(gateway, { addresses, drains: false })
            const asked = { ...rest, metadata: { ...metadata, annotations: { [ANNOTATION_ROTATE_KEYS]: request } } }
            for (const one of nodes.filter(({ site }) => site === gateway.site)) one.process?.put(asked)
          }
          const errors = (): string => nodes.map(({ process }) => process?.errors ?? '').join('')
          const pods = { milano: podOf(nodes, 'milano'), paris: podOf(nodes, 'paris') }
          const broker = new Broker()
          try {
            start({ nodes, folder, addresses, broker })
            await untilUp(nodes, errors)
            return await story({ internet, nodes, pods, gateways, drain, rotate, broker, errors })
          } finally {
            await Promise.all(nodes.flatMap(({ process }) => process?.stop() ?? []))
          }
        })
      },
    )
  })
}

function podOf(nodes: readonly SiteNode[], site: SiteName): Netns {
  const { pod } = nodeOf(nodes, site, 'worker')
  if (pod === undefined) throw new Error(`the worker of ${site} has no pod`)
  return pod
}

async function withPods<T>(
  [first, ...rest]: readonly SiteNode[],
  addresses: SiteAddresses,
  story: () => Promise<T>,
): Promise<T> {
  if (first === undefined) return story()
  return withNetns(async (pod) => {
    first.pod = pod
    await wirePod(first, addresses)
    return withPods(rest, addresses, story)
  })
}

function withNodes<T>(
  [first, ...rest]: readonly (readonly [SiteName, string])[],
  internet: Netns,
  made: readonly SiteNode[],
  story: (nodes: readonly SiteNode[]) => Promise<T>,
): Promise<T> {
  if (first === undefined) return story(made)
  const [site, name] = first
  return withNetns((netns) =>
    withNodes(rest, internet, [...made, new SiteNode({ site, name, netns, internet })], story),
  )
}

async function wirePod({ netns, site, pod, podNetwork: number }: SiteNode, { pods, pods6 }: SiteAddresses) {
  if (pod === undefined) throw new Error('no pod')
  const network = `${pods[site]}.${number}`
  await ip(netns, `link add pod0 type veth peer name eth0 netns ${pod.name}`)
  await ip(netns, `address add ${network}.1/24 dev pod0`)
  await ip(netns, 'link set pod0 up')
  await ip(pod, `address add ${network}.7/24 dev eth0`)
  await ip(pod, 'link set eth0 up')
  await ip(pod, `route add default via ${network}.1`)
  if (pods6 === undefined) return
  const network6 = `${pods6[site]}:0:${number}`
  await ip(netns, `address add ${network6}::1/64 dev pod0 nodad`)
  await ip(pod, `address add ${network6}::7/64 dev eth0 nodad`)
  await ip(pod, `-6 route add default via ${network6}::1`)
}

interface StartInit {
  readonly nodes: readonly SiteNode[]
  readonly folder: string
  readonly addresses: SiteAddresses
  readonly broker: Broker
}

function start({ nodes, folder, addresses, broker }: StartInit): void {
  for (const one of nodes) {
    const lanes = isGateway(one) ? [{ lane: laneOf(one), publicAddress: one.address }] : []
    one.process = new NodeProcess({ node: one.name, netns: one.netns, folder: join(folder, one.port), lanes })
    one.process.put(...objects(one.site, nodes, addresses))
  }
  for (const from of nodes) {
    for (const to of nodes) {
      if (from === to) continue
      const isLocal = from.site === to.site
      from.process?.follow((object) => {
        if (!isOf(from, object)) return
        if (isLocal) to.process?.put(object)
        else if (isEndpoint(object)) broker.pass(() => to.process?.put(object))
      })
    }
  }
}

function objects(site: SiteName, nodes: readonly SiteNode[], addresses: SiteAddresses): KubeObject[] {
  const base = membership()
  return [
    { ...base, spec: { ...base.spec, clusterId: site } },
    ...SITES.map((name) => clusterObject(name, addresses)),
    ...nodes.filter((one) => one.site === site).map((one) => nodeObject(one, { addresses, drains: false })),
  ]
}

function clusterObject(site: SiteName, { pods, known, pods6 }: SiteAddresses): Cluster {
  const globalCIDR = known[site] === pods[site] ? undefined : `${known[site]}.0.0/16`
  const made = cluster(site, SITES.indexOf(site) + 1, globalCIDR, `${pods[site]}.0.0/16`)
  return pods6 === undefined ? made : dualStack(made, `${pods6[site]}::/48`)
}

interface NodeChange {
  readonly addresses: SiteAddresses
  readonly drains: boolean
}

function nodeObject(one: SiteNode, { addresses: { pods, pods6 }, drains }: NodeChange): Node {
  const { site, name, address, pod, podNetwork } = one
  const range = `${pods[site]}.${podNetwork}.0/24`
  const plain = pod === undefined ? node(name, address) : node(name, address, range)
  const object =
    pod === undefined || pods6 === undefined ? plain : dualStackNode(plain, `${pods6[site]}:0:${podNetwork}::/64`)
  const labels = drains ? { [LABEL_DRAIN]: 'true' } : {}
  return { ...object, metadata: { ...object.metadata, labels } }
}

/**
 * Whether a node wrote this object about itself; a process also keeps copies of the others' objects, and does not
 * report these.
 */
function isOf({ site, name }: SiteNode, object: KubeObject): boolean {
  if (object.kind === 'Endpoint') return object.spec.cluster === site && object.spec.node === name
  return ['Gateway', 'RouteAgent'].includes(object.kind) && object.metadata.name === name
}

async function untilUp(nodes: readonly SiteNode[], errors: () => string): Promise<void> {
  const links = (one: SiteNode): number =>
    JSON.stringify(one.process?.get('Gateway', one.name) ?? '').split('"state":"up"').length - 1
  const all = nodes.filter(isGateway).length / SITES.length
  await eventually(() => nodes.filter(isGateway).every((one) => links(one) === all), {
    deadlineMs: 60_000,
    say: `${all} links at each gateway (${nodes.filter(isGateway).map(links).join(' ')}; ${errors()})`,
  })
}

const isEndpoint = (object: KubeObject): boolean => object.kind === 'Endpoint'
const isGateway = ({ name }: SiteNode): boolean => name !== 'worker'
const laneOf = ({ name }: SiteNode): number => Number(name.slice(2))

function nodeOf(nodes: readonly SiteNode[], site: SiteName, name: string): SiteNode {
  const found = nodes.find((one) => one.site === site && one.name === name)
  if (found === undefined) throw new Error(`no node ${name} in ${site}`)
  return found
}

function ip(ns: Netns, text: string): Promise<string> {
  return ns.exec('ip', text.split(' '))
}
