/** A node that comes to a test cluster after all the others. */
import { join } from 'node:path'
import { eventually } from '../../support/eventually.ts'
import { actAsCni } from './act-as-cni.ts'
import { startKubeProxy } from './kube-proxy.ts'
import { type KubeNode, startNode } from './node.ts'
import { type TestCluster, type TestClusters, NODE_HOST_PATHS, clusterDnsOf, testImages } from './two-clusters.ts'

export interface LateNodeInit {
  readonly clusters: TestClusters
  readonly cluster: TestCluster
  readonly name: string
  /** Without prefix length; nobody else's. */
  readonly address: string
  /** The one that the clusters were started in. */
  readonly directory: string
  /** Nodes that came late before it and are still there. */
  readonly late?: readonly KubeNode[]
}

export interface LateNode extends KubeNode {
  /** Takes it out as an operator would: it ends, then its Node goes. Pods on it are drained before. */
  remove(): Promise<void>
}

/** Waits until it is Ready and pods of all nodes reach each other. */
export async function addNode(init: LateNodeInit): Promise<LateNode> {
  const { clusters, cluster, name, address, directory, late = [] } = init
  const { plane, row, nodes } = cluster
  const { underlay } = clusters
  const netns = underlay.addNode(name, `${address}/24`)
  const own = join(directory, row.name)
  const node = await startNode({
    name,
    cluster: plane,
    netns,
    addresses: [address],
    directory: own,
    images: await testImages(),
    clusterDns: [clusterDnsOf(row)],
    sharedHostPaths: NODE_HOST_PATHS,
    maxGraceSeconds: 5,
  })
  const proxy = await startKubeProxy({ cluster: plane, node: name, netns, directory: own, podCIDR: row.podCIDR })
  await actAsCni(plane, row.podCIDR, [{ name, netns, addresses: [address] }], underlay)
  const range = await podRange(cluster, name)
  for (const other of [...nodes, ...late]) {
    if ((await plane.api.find(`/api/v1/nodes/${other.name}`)) === undefined) continue
    underlay.route(other.name, range, address)
    underlay.route(name, await podRange(cluster, other.name), other.address)
  }
  return {
    ...node,
    remove: async () => {
      await node.stop()
      await proxy.stop()
      await plane.api.delete(`/api/v1/nodes/${name}`)
    },
  }
}

async function podRange({ plane }: TestCluster, node: string): Promise<string> {
  return await eventually(async () => {
    const found = await plane.api.get<{ spec: { podCIDR?: string } }>(`/api/v1/nodes/${node}`)
    return found.spec.podCIDR
  })
}
