/**
 * Two sites of the same pod addresses, each with two gateway nodes and a worker with a pod, on the real drivers:
 *
 *   pod ── worker ══ overlay ══ gw0 ─┐             ┌─ gw0 ══ overlay ══ worker ── pod
 *   10.42.6.7            ╚═════ gw1 ─┴─ internet ──┴─ gw1 ═════╝              10.42.6.7
 *
 * From milano, the pod of paris is 244.1.6.7; from paris, that of milano is 244.0.6.7. All nodes have uplinks of their
 * own to one router, the internet. What the nodes of a site report reaches the others of the site past the network, as
 * by an API server that is always there; their Endpoints reach the other site the same way.
 */
import { join } from 'node:path'
import { ANNOTATION_ROTATE_KEYS, LABEL_DRAIN } from '../../model/lanes/gateway-node.ts'
import type { KubeObject, Node } from '../../model/objects.ts'
import { NodeProcess } from '../routeagent/support/node-process.ts'
import { cluster, membership, node } from '../routeagent/support/site.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, withNetns } from '../support/netns.ts'

export const SITES = ['milano', 'paris'] as const
export type SiteName = (typeof SITES)[number]

/** As seen from the other site. */
export const POD_ADDRESSES: Readonly<Record<SiteName, string>> = { milano: '244.0.6.7', paris: '244.1.6.7' }
const POD = '10.42.6.7'
const CLUSTERS = [cluster('milano', 1, '244.0.0.0/16'), cluster('paris', 2, '244.1.0.0/16')]
const NETWORKS: Readonly<Record<SiteName, string>> = { milano: '192.0', paris: '198.51' }
/** Third number of a node's network. */
const NODES: Readonly<Record<string, number>> = { gw0: 10, gw1: 11, worker: 12 }

/** One node, and how it is cut off from everything. */
export class SiteNode {
  readonly site: SiteName
  readonly name: string
  readonly netns: Netns
  readonly #internet: Netns
  process: NodeProcess | undefined

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

  get port(): string {
    return `${this.site}-${this.name}`
  }

  /** As when its power fails: no packet, no word, no goodbye. */
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
  readonly pods: Readonly<Record<SiteName, Netns>>
  readonly gateways: (site: SiteName) => readonly SiteNode[]
  /** Puts the label of a drain on the Node, or takes it off. */
  readonly drain: (gateway: SiteNode, on: boolean) => void
  /** Asks for a new key of the gateway; another request than before is another rotation. */
  readonly rotate: (gateway: SiteNode, request: string) => void
  /** What the processes wrote on standard error. */
  readonly errors: () => string
}

/** Builds all of it in `folder`, waits until each gateway has all its links up, and takes it away after `story`. */
export async function withTwoSites<T>(
  folder: string,
  story: (sites: TwoSites) => Promise<T>,
  names: readonly string[] = Object.keys(NODES),
): Promise<T> {
  return withNetns(async (internet) => {
    await internet.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
    const all = SITES.flatMap((site) => names.map((name) => [site, name] as const))
    return withNodes(all, internet, [], (nodes) =>
      withNetns((milano) =>
        withNetns(async (paris) => {
          const pods = { milano, paris }
          for (const one of nodes) await one.wire()
          for (const site of SITES) await wirePod(nodeOf(nodes, site, 'worker').netns, pods[site])
          const gateways = (site: SiteName): SiteNode[] => nodes.filter((one) => one.site === site && isGateway(one))
          const drain = (gateway: SiteNode, on: boolean): void => {
            for (const one of nodes.filter(({ site }) => site === gateway.site))
              one.process?.put(nodeObject(gateway, on))
          }
          const rotate = (gateway: SiteNode, request: string): void => {
            const { metadata, ...rest } = nodeObject(gateway, false)
            const asked = { ...rest, metadata: { ...metadata, annotations: { [ANNOTATION_ROTATE_KEYS]: request } } }
            for (const one of nodes.filter(({ site }) => site === gateway.site)) one.process?.put(asked)
          }
          const errors = (): string => nodes.map(({ process }) => process?.errors ?? '').join('')
          try {
            start(nodes, folder)
            await untilUp(nodes, errors)
            return await story({ internet, nodes, pods, gateways, drain, rotate, errors })
          } finally {
            await Promise.all(nodes.flatMap(({ process }) => process?.stop() ?? []))
          }
        }),
      ),
    )
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

async function wirePod(worker: Netns, pod: Netns): Promise<void> {
  await ip(worker, `link add pod0 type veth peer name eth0 netns ${pod.name}`)
  await ip(worker, 'address add 10.42.6.1/24 dev pod0')
  await ip(worker, 'link set pod0 up')
  await ip(pod, `address add ${POD}/24 dev eth0`)
  await ip(pod, 'link set eth0 up')
  await ip(pod, 'route add default via 10.42.6.1')
}

function start(nodes: readonly SiteNode[], folder: string): void {
  for (const one of nodes) {
    const lanes = isGateway(one) ? [{ lane: laneOf(one), publicAddress: one.address }] : []
    one.process = new NodeProcess({ node: one.name, netns: one.netns, folder: join(folder, one.port), lanes })
    one.process.put(...objects(one.site, nodes))
  }
  for (const from of nodes) {
    for (const to of nodes) {
      if (from === to) continue
      from.process?.report(to.process!, (object) => isOf(from, object) && (from.site === to.site || isEndpoint(object)))
    }
  }
}

function objects(site: SiteName, nodes: readonly SiteNode[]): KubeObject[] {
  const base = membership()
  return [
    { ...base, spec: { ...base.spec, clusterId: site } },
    ...CLUSTERS,
    ...nodes.filter((one) => one.site === site).map((one) => nodeObject(one, false)),
  ]
}

function nodeObject({ name, address }: SiteNode, drains: boolean): Node {
  const object = name === 'worker' ? node(name, address, '10.42.6.0/24') : node(name, address)
  const labels = drains ? { [LABEL_DRAIN]: 'true' } : {}
  return { ...object, metadata: { ...object.metadata, labels } }
}

/** What a node writes about itself; a process keeps copies of what the others wrote, and does not report these. */
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
