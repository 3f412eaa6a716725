/**
 * Two joined clusters, of which the second has nodes that become gateways, stop being ones, and are lost. Its heartbeat
 * is short, so that silence is noticed soon.
 */
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type Site, helloDeployment, helloService, onNode, openForCalls, readyPods } from '../support/callers.ts'
import { joinClusters } from '../support/joined-clusters.ts'
import type { Json, KubeObject } from '../support/kube-request.ts'
import type { KubeNode } from '../support/node.ts'
import { dumpNode } from '../support/node-dump.ts'
import { awaitImport, exportService } from '../support/service-imports.ts'
import { type ClusterRow, type TestCluster, type TestClusters, startClusters } from '../support/two-clusters.ts'

/**
 * The broker is on the first cluster. The second has its control plane on c2n1, and its answering and calling pods on
 * c2n3.
 */
const ROWS: readonly ClusterRow[] = [
  { name: 'c1', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16', nodes: ['c1n1'] },
  { name: 'c2', podCIDR: '10.52.0.0/16', serviceCIDR: '10.53.0.0/16', nodes: ['c2n1', 'c2n2', 'c2n3'] },
]

export const OURS = '/apis/sealane.io/v1alpha1'
const LABEL = 'sealane.io/gateway'
/** A service that only the second cluster exports. */
export const FAR = 'far.demo.svc.clusterset.local'
/** The heartbeat of all parts; test/gateway and test/kubeapi test the default with a fake clock. */
export const HEARTBEAT_MS = 2000
/**
 * The time in which a pod of the gateway may end: one that is killed sooner on a busy machine leaves its Gateway
 * behind.
 */
const GRACE_SECONDS = 45

export interface NodeWorld {
  readonly directory: string
  readonly clusters: TestClusters
  /** The cluster that calls. */
  readonly there: Site
  /** The cluster that is called, and whose gateways move. */
  readonly here: Site
  /** The nodes of the second cluster, of which two become gateways at times. */
  readonly nodes: readonly [KubeNode, KubeNode, KubeNode]
  /** The kernels of all nodes before anything of ours was installed. */
  readonly kernels: ReadonlyMap<string, string>
}

export async function startNodeWorld(t: Test): Promise<NodeWorld> {
  const directory = temporaryFolder(t)
  const environment = { SEALANE_HEARTBEAT: `${HEARTBEAT_MS}ms` }
  const clusters = await startClusters({ directory, rows: ROWS, maxGraceSeconds: GRACE_SECONDS, environment })
  t.teardown(() => clusters.stop())
  const [first, second] = clusters.clusters
  const [a, b, c] = second?.nodes ?? []
  if (first === undefined || a === undefined || b === undefined || c === undefined) throw new Error('too few nodes')
  const [there, here] = clusters.clusters.map(siteOf) as [Site, Site]
  await Promise.all([openDemo(there, 'c1n1'), openDemo(here, c.name)])
  // The agents are placed on the two that become gateways, and stay there, because pods of the third name their node.
  await here.api.merge(`/api/v1/nodes/${c.name}`, { spec: { unschedulable: true } })
  const kernels = new Map(clusters.clusters.flatMap(({ nodes }) => nodes.map((node) => [node.name, dumpNode(node)])))
  await joinClusters(clusters, directory, (line) => t.comment(line))
  t.equal(await labelled(here), `${a.name} ${b.name}`, 'where nobody says how many, a join makes two gateways')
  await eventually(async () => (await gateways(here)) === `${a.name} ${b.name}`, {
    deadlineMs: 60_000,
    say: 'both are active',
  })
  await here.api.apply('/api/v1/namespaces/demo/services/far', helloService('far'))
  await exportService(here, 'demo', 'far')
  await awaitImport(there, 'demo', 'far')
  return { directory, clusters, there, here, nodes: [a, b, c], kernels }
}

function siteOf({ row, plane }: TestCluster): Site {
  return { name: row.name, api: plane.api, kubeconfig: plane.kubeconfig }
}

/** The answering pods and the calling one are all on one node, so that they stay while gateways move. */
async function openDemo(site: Site, node: string): Promise<void> {
  await openForCalls(site, 'demo', node)
  const deployment = helloDeployment(site.name) as { spec: { template: Json } } & Json
  const spec = { ...deployment.spec, template: onNode(deployment.spec.template, node) }
  await site.api.apply('/apis/apps/v1/namespaces/demo/deployments/hello', { ...deployment, spec })
  await readyPods(site, 'demo', 2)
}

export async function label({ api }: Site, node: string, lane: string | null): Promise<void> {
  await api.merge(`/api/v1/nodes/${node}`, { metadata: { labels: { [LABEL]: lane } } })
}

/** The nodes that may be gateways, whichever lane they take. */
async function labelled({ api }: Site): Promise<string> {
  return namesOf(await api.list(`/api/v1/nodes?labelSelector=${encodeURIComponent(`${LABEL}=true`)}`))
}

export async function names({ api }: Site, plural: string): Promise<string> {
  return namesOf(await api.list(`${OURS}/${plural}`))
}

export const gateways = (site: Site): Promise<string> => names(site, 'gateways')

function namesOf(objects: readonly KubeObject[]): string {
  return objects
    .map(({ metadata }) => metadata.name)
    .sort()
    .join(' ')
}
