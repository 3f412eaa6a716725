/**
 * Real clusters that can reach each other: control planes, nodes with pods, kube-proxy and CoreDNS, each node a network
 * namespace on one bridge. What a CNI would do is done with routes and a masquerade rule, as flannel's host-gw does.
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../support/source-tree.ts'
import { coreDnsProgram } from '../coredns/run-coredns.ts'
import { type NodePlace, actAsCni } from './act-as-cni.ts'
import { CORE_DNS_IMAGE, coreDnsObjects } from './core-dns-objects.ts'
import { type ControlPlane, startControlPlane } from './control-plane.ts'
import { type Etcd, startEtcd } from './etcd.ts'
import { type KubeProxy, startKubeProxy } from './kube-proxy.ts'
import { type Image, type KubeNode, startNode } from './node.ts'
import { type Underlay, makeUnderlay } from './underlay.ts'

export interface ClusterRow {
  readonly name: string
  /** One range, or one of each family with a comma between, IPv4 first. */
  readonly podCIDR: string
  /** The same families. */
  readonly serviceCIDR: string
  /** Names of its nodes; the control plane runs on the first. */
  readonly nodes: readonly string[]
  /** Its node is behind address translation, in a network of its own; one node only. */
  readonly behindNat?: true
}

export interface TestCluster {
  readonly row: ClusterRow
  readonly plane: ControlPlane
  readonly nodes: readonly KubeNode[]
}

export interface TestClusters {
  readonly underlay: Underlay
  readonly clusters: readonly TestCluster[]
  /** Ends everything and removes the namespaces. */
  stop(): Promise<void>
}

/** The image that installs refer to: this checkout. */
export const SEALANE_IMAGE = 'localhost/sealane:test'

/** The etcd of this machine: what is installed beside replicas of the broker. */
export const ETCD_IMAGE = 'localhost/etcd:test'

/** Two clusters of one node each, pods and Services apart. */
export const FLAT: readonly ClusterRow[] = [
  { name: 'c1', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16', nodes: ['c1n1'] },
  { name: 'c2', podCIDR: '10.52.0.0/16', serviceCIDR: '10.53.0.0/16', nodes: ['c2n1'] },
]

/** The same with everything overlapping. */
export const OVERLAPPING: readonly ClusterRow[] = FLAT.map((row) => ({
  ...row,
  podCIDR: '10.42.0.0/16',
  serviceCIDR: '10.43.0.0/16',
}))

/** FLAT with IPv6 beside IPv4: pods, Services and nodes have addresses of both. */
export const DUAL: readonly ClusterRow[] = [
  {
    name: 'c1',
    podCIDR: '10.42.0.0/16,fd00:42::/48',
    serviceCIDR: '10.43.0.0/16,fd00:43::/112',
    nodes: ['c1n1'],
  },
  {
    name: 'c2',
    podCIDR: '10.52.0.0/16,fd00:52::/48',
    serviceCIDR: '10.53.0.0/16,fd00:53::/112',
    nodes: ['c2n1'],
  },
]

export interface TestClustersInit {
  readonly directory: string
  readonly rows: readonly ClusterRow[]
  /** Bound on the time in which pods may end. Default 5. */
  readonly maxGraceSeconds?: number
  /** What the image of Sealane has in its environment. */
  readonly environment?: Readonly<Record<string, string>>
  /** A further name under which every node has the image of Sealane. */
  readonly imageName?: string
  /** What every node can run besides. */
  readonly images?: Readonly<Record<string, Image>>
}

/** Throws with the log of what failed, and leaves nothing behind. */
export async function startClusters(init: TestClustersInit): Promise<TestClusters> {
  const { directory, rows, maxGraceSeconds = 5, environment, imageName = SEALANE_IMAGE, images: more } = init
  const underlay = makeUnderlay()
  const stops: (() => Promise<void>)[] = []
  const stop = async (): Promise<void> => {
    for (const end of stops.splice(0).reverse()) await end().catch(() => undefined)
    underlay.remove()
  }
  try {
    const etcd = await startEtcd({ directory: join(directory, 'etcd') })
    stops.push(() => etcd.stop())
    const ours = await testImages(environment)
    const images = {
      ...ours,
      ...(ours[SEALANE_IMAGE] === undefined ? {} : { [imageName]: ours[SEALANE_IMAGE] }),
      ...more,
    }
    const clusters = await Promise.all(
      rows.map((row, i) =>
        startCluster({
          row,
          index: i + 1,
          underlay,
          etcd,
          images,
          directory: join(directory, row.name),
          maxGraceSeconds,
          stops,
        }),
      ),
    )
    return { underlay, clusters, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

interface ClusterInit {
  readonly row: ClusterRow
  readonly index: number
  readonly underlay: Underlay
  readonly etcd: Etcd
  readonly images: Readonly<Record<string, Image>>
  readonly directory: string
  readonly maxGraceSeconds: number
  readonly stops: (() => Promise<void>)[]
}

async function startCluster({
  row,
  index,
  underlay,
  etcd,
  images,
  directory,
  maxGraceSeconds,
  stops,
}: ClusterInit): Promise<TestCluster> {
  mkdirSync(directory, { recursive: true })
  const places = row.nodes.map((name, i) => placeNode(name, index * 10 + i + 1, row, underlay))
  const [first] = places
  if (first === undefined) throw new Error(`cluster ${row.name} has no node`)
  const plane = await startControlPlane({
    name: row.name,
    directory,
    etcd,
    serviceCIDR: row.serviceCIDR,
    podCIDR: row.podCIDR,
    netns: first.netns,
    listen: first.addresses[0],
    scheduler: true,
  })
  stops.push(() => plane.stop())
  const clusterDns = clusterDnsOf(row)
  const nodes: KubeNode[] = []
  for (const place of places) {
    const node = await startNode({
      name: place.name,
      cluster: plane,
      netns: place.netns,
      addresses: place.addresses,
      directory,
      images,
      clusterDns: [clusterDns],
      sharedHostPaths: NODE_HOST_PATHS,
      maxGraceSeconds,
    })
    stops.push(() => node.stop())
    nodes.push(node)
    const proxy: KubeProxy = await startKubeProxy({
      cluster: plane,
      node: place.name,
      netns: place.netns,
      directory,
      podCIDR: row.podCIDR,
    })
    stops.push(() => proxy.stop())
  }
  await actAsCni(plane, row.podCIDR, places, underlay)
  for (const object of coreDnsObjects(clusterDns)) await plane.api.apply(object.path, { ...object.body })
  for (const name of VOLUMES) await plane.api.apply(`/api/v1/persistentvolumes/${name}`, volume(name))
  return { row, plane, nodes }
}

/** What the programs of a node's kernel parts need of this machine. */
export const NODE_HOST_PATHS: readonly string[] = ['/proc/sys/net', '/sys/devices/virtual/net', '/dev/net/tun']

/** The address of cluster DNS. */
export function clusterDnsOf({ serviceCIDR }: ClusterRow): string {
  return serviceCIDR.replace(/\.0\/\d+(,.*)?$/, '.10')
}

/** Makes the namespace of a node. An IPv6 address only where the cluster has that family, as a real node would. */
function placeNode(name: string, number: number, { podCIDR, behindNat }: ClusterRow, underlay: Underlay): NodePlace {
  if (behindNat === true) return placeBehindNat(name, number, underlay)
  const addresses: NodePlace['addresses'] = [
    `192.0.2.${number}`,
    ...(podCIDR.includes(':') ? [`2001:db8::${number}`] : []),
  ]
  const netns = underlay.addNode(name, ...addresses.map((address) => `${address}/${address.includes(':') ? 64 : 24}`))
  return { name, addresses, netns }
}

/** Others see its router, whose number is the node's and 8 more. */
function placeBehindNat(name: string, number: number, underlay: Underlay): NodePlace {
  const address = `10.77.0.${number}`
  const places = { node: `${address}/24`, inside: '10.77.0.1/24', outside: `192.0.2.${number + 8}/24` }
  return { name, addresses: [address], netns: underlay.addNodeBehindNat(name, places) }
}

/** What a storage class would make: a claim takes one of them, and none twice. */
export const VOLUMES: readonly string[] = [1, 2, 3, 4, 5, 6, 7].map((n) => `disk-${n}`)

function volume(name: string): Readonly<Record<string, unknown>> {
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name },
    spec: {
      capacity: { storage: '1Gi' },
      accessModes: ['ReadWriteOnce'],
      persistentVolumeReclaimPolicy: 'Retain',
      // In the node's own folder of the test.
      hostPath: { path: `/disks/${name}` },
    },
  }
}

/** Where the image of the Containerfile has it, so that the checkout may lie anywhere. */
const IMAGE_ROOT = '/opt/sealane'

/** What every node can run: this checkout with that in its environment, CoreDNS, and etcd. */
export async function testImages(
  environment: Readonly<Record<string, string>> = {},
): Promise<Readonly<Record<string, Image>>> {
  const coreDns = await coreDnsProgram()
  return {
    [SEALANE_IMAGE]: {
      root: 'host',
      entrypoint: [`${IMAGE_ROOT}/bin/sealane`],
      env: { PATH: `${IMAGE_ROOT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`, ...environment },
      paths: { [IMAGE_ROOT]: ROOT },
      devices: ['/dev/net/tun'],
    },
    [ETCD_IMAGE]: { root: 'host', entrypoint: ['etcd'] },
    [CORE_DNS_IMAGE]: { root: 'host', entrypoint: ['/coredns'], paths: { '/coredns': coreDns } },
  }
}
