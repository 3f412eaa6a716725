/** The three clusters of the demo, and what each was before anything of Sealane came. */
import { join } from 'node:path'
import type { Site } from '../../test/kube/support/callers.ts'
import { mergeKubeconfigs } from '../../test/kube/support/kubeconfig-file.ts'
import { dumpNode } from '../../test/kube/support/node-dump.ts'
import { dumpObjects } from '../../test/kube/support/object-dump.ts'
import { type ClusterRow, type TestCluster, startClusters } from '../../test/kube/support/two-clusters.ts'
import type { CheckOf } from '../run-check.ts'
import { openShop } from './shop.ts'
import { TypedCommands } from './typed-commands.ts'

export interface Member extends Site {
  readonly cluster: TestCluster
  /** All objects, before the first command of Sealane. */
  readonly objects: ReadonlyMap<string, string>
  /** Node → rules, routes, devices and switches of its kernel, before the first command of Sealane. */
  readonly kernels: ReadonlyMap<string, string>
}

export interface World {
  readonly directory: string
  /** One file with a context for each cluster. */
  readonly kubeconfig: string
  readonly flat: boolean
  readonly members: readonly Member[]
  readonly commands: TypedCommands
  /** Ends every program and takes the network namespaces away. */
  stop(): Promise<void>
}

export type Check = CheckOf<World>

/** hub bears the broker and is a member as the others are. With `flat` nobody's addresses overlap. */
export function clusterRows(flat: boolean): readonly ClusterRow[] {
  const nodes = { hub: ['hub-1'], c1: ['c1-1', 'c1-2'], c2: ['c2-1'] }
  return Object.entries(nodes).map(([name, names], i) => {
    const net = flat ? 42 + 10 * i : 42
    return { name, podCIDR: `10.${net}.0.0/16`, serviceCIDR: `10.${net + 1}.0.0/16`, nodes: names }
  })
}

export interface WorldInit {
  /** Exists; its path is short. */
  readonly directory: string
  readonly flat: boolean
  /** Called with each command of Sealane, as it was typed, and what it answered. */
  readonly say: (line: string) => void
}

/**
 * Three clusters with a shop in each and nothing of Sealane. Throws with the log of what failed, and leaves nothing.
 */
export async function startWorld({ directory, flat, say }: WorldInit): Promise<World> {
  const { clusters, ...network } = await startClusters({ directory, rows: clusterRows(flat) })
  const stop = (): Promise<void> => network.stop()
  try {
    const parts = clusters.map(({ row, plane }) => ({ context: row.name, path: plane.kubeconfig }))
    const kubeconfig = mergeKubeconfigs(join(directory, 'kubeconfig'), parts)
    const members = await Promise.all(clusters.map(bareMember))
    return { directory, kubeconfig, flat, members, commands: new TypedCommands({ directory, kubeconfig, say }), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

async function bareMember(cluster: TestCluster): Promise<Member> {
  const { row, plane, nodes } = cluster
  const site: Site = { name: row.name, api: plane.api, kubeconfig: plane.kubeconfig }
  await site.api.apply('/api/v1/namespaces/kube-system/configmaps/kubeadm-config', kubeadmConfig(row))
  await openShop(site)
  const kernels = new Map(nodes.map((node) => [node.name, dumpNode(node)]))
  return { ...site, cluster, kernels, objects: await dumpObjects(plane.api) }
}

/** What kubeadm leaves in each cluster that it makes: here `join` finds the ranges of pods and Services. */
function kubeadmConfig({ podCIDR, serviceCIDR }: ClusterRow): Readonly<Record<string, unknown>> {
  const text = [
    'apiVersion: kubeadm.k8s.io/v1beta4',
    'kind: ClusterConfiguration',
    'networking:',
    '  dnsDomain: cluster.local',
    `  podSubnet: ${podCIDR}`,
    `  serviceSubnet: ${serviceCIDR}`,
    '',
  ].join('\n')
  const metadata = { name: 'kubeadm-config', namespace: 'kube-system' }
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { ClusterConfiguration: text } }
}

/** Throws when the demo has no such cluster. */
export function memberOf({ members }: Pick<World, 'members'>, name: string): Member {
  const found = members.find((member) => member.name === name)
  if (found === undefined) throw new Error(`no cluster ${name}`)
  return found
}
