/**
 * Two joined clusters, of which the second has nodes that become gateways, stop being ones, and are lost. Its heartbeat
 * is short, so that who says nothing is soon known to.
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

/** The broker is on the first. The second has its control plane on c2n1, and on c2n3 the pods that answer and call. */
const ROWS: readonly ClusterRow[] = [
  { name: 'c1', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16', nodes: ['c1n1'] },
  { name: 'c2', podCIDR: '10.52.0.0/16', serviceCIDR: '10.53.0.0/16', nodes: ['c2n1', 'c2n2', 'c2n3'] },
]

export const OURS = '/apis/sealane.io/v1alpha1'
const LABEL = 'sealane.io/gateway'
/** A service that the second cluster alone exports. */
export const FAR = 'far.demo.svc.clusterset.local'
/** Of all parts: test/gateway and test/kubeapi show the default with a clock. */
export const HEARTBEAT_MS = 2000
/** What a pod of the gateway may take to end: killed sooner on a busy machine, it leaves its Gateway behind. */
const GRACE_SECONDS = 45

export interface NodeWorld {
  readonly directory: string
  readonly clusters: TestClusters
  /** Calls. */
  readonly there: Site
  /** Is called, and its gateways move. */
  readonly here: Site
  /** Of the second cluster. Two are gateways from time to time. */
  readonly nodes: readonly [KubeNode, KubeNode, KubeNode]
  /** Kernels of all nodes before anything of ours came. */
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
  // The agents come to the two that are gateways, and stay there: pods of the third name it.
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

/** Pods that answer and the one that calls, all on one node: they stay where they are while gateways move. */
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

/** The nodes that a gateway may be on, whichever lane it takes. */
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
