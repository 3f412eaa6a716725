/**
 * Three clusters, two of which call the third twenty times a second while its gateway nodes go and come: joined by the
 * command line, and what is done to gateways.
 */
import { execFileSync } from 'node:child_process'
import type { Test } from 'tap'
import type { Gateway } from '../../../model/objects.ts'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type Site, helloDeployment, helloService, openForCalls, openNamespace, readyPods } from './callers.ts'
import { joinClusters } from './joined-clusters.ts'
import type { Json, KubeObject } from './kube-request.ts'
import type { KubeNode } from './node.ts'
import { type RapidCalls, type RapidReport, callRapidly } from './rapid-calls.ts'
import { exportService } from './service-imports.ts'
import { type ClusterRow, type TestCluster, type TestClusters, startClusters } from './two-clusters.ts'

const ROWS: readonly ClusterRow[] = [
  { name: 'c1', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16', nodes: ['c1n1'] },
  { name: 'c2', podCIDR: '10.52.0.0/16', serviceCIDR: '10.53.0.0/16', nodes: ['c2n1', 'c2n2', 'c2n3'] },
  { name: 'c3', podCIDR: '10.62.0.0/16', serviceCIDR: '10.63.0.0/16', nodes: ['c3n1'] },
]

const SYSTEM = 'sealane-system'
const OURS = '/apis/sealane.io/v1alpha1'
/** What a pod of the gateway may take to end: a lane is handed over first. */
const GRACE_SECONDS = 45

export interface GatewayWorld {
  readonly underlay: TestClusters['underlay']
  readonly c2: Site
  readonly c3: Site
  readonly nodes: readonly KubeNode[]
  /** From c1 and from c3 to a pod on the third node of c2, which is no gateway. */
  readonly calls: readonly RapidCalls[]
}

/** With these flags for the join of c2; the others join without any. */
export async function startGatewayWorld(t: Test, flags: readonly string[] = []): Promise<GatewayWorld> {
  const directory = temporaryFolder(t)
  const clusters = await startClusters({ directory, rows: ROWS, maxGraceSeconds: GRACE_SECONDS })
  t.teardown(() => clusters.stop())
  const [c1, c2, c3] = clusters.clusters.map(siteOf)
  if (c1 === undefined || c2 === undefined || c3 === undefined) throw new Error('too few clusters')
  await Promise.all([openNamespace(c2, 'demo', onNode('c2n3')), openForCalls(c1, 'demo'), openForCalls(c3, 'demo')])
  const pods = await readyPods(c2, 'demo', 2)
  const hello = [...pods].find(([name]) => name.startsWith('hello'))?.[1] ?? ''
  // Where a gateway is called is none of this story: each Node says it.
  for (const { plane, nodes } of clusters.clusters) {
    for (const { name, address } of nodes) {
      const annotations = { 'sealane.io/public-address': address }
      await plane.api.merge(`/api/v1/nodes/${name}`, { metadata: { annotations } })
    }
  }
  await joinClusters(
    clusters,
    directory,
    (line) => t.comment(line),
    (cluster) => (cluster === 'c2' ? flags : []),
  )
  // A cluster lets in nothing but what it exports. The calls go to the pod itself.
  await c2.api.apply('/api/v1/namespaces/demo/services/hello', helloService('hello'))
  await exportService(c2, 'demo', 'hello')
  const calls = await Promise.all([c1, c3].map((site) => callRapidly(site, 'demo', hello)))
  return { underlay: clusters.underlay, c2, c3, nodes: clusters.clusters[1]?.nodes ?? [], calls }
}

function siteOf({ row, plane }: TestCluster): Site {
  return { name: row.name, api: plane.api, kubeconfig: plane.kubeconfig }
}

function onNode(node: string): Json {
  const deployment = helloDeployment('c2') as { spec: { template: { spec: Json } } } & Json
  const template = { ...deployment.spec.template, spec: { ...deployment.spec.template.spec, nodeName: node } }
  return { ...deployment, spec: { ...deployment.spec, template } }
}

/** Names of the nodes that have a Gateway object. */
export async function gateways({ api }: Site): Promise<string> {
  const objects = await api.list<Gateway & KubeObject>(`${OURS}/gateways`)
  return objects
    .map(({ metadata }) => metadata.name)
    .sort()
    .join(' ')
}

/** What the calls lost since the last look, at each caller. */
export async function lossOf(t: Test, { calls }: GatewayWorld, what: string): Promise<readonly RapidReport[]> {
  const reports = await Promise.all(calls.map((one) => one.look()))
  for (const [i, { calls, unanswered, longestGapMs }] of reports.entries()) {
    t.comment(
      `${what}, from ${['c1', 'c3'][i] ?? ''}: ${unanswered} of ${calls} had no answer, longest gap ${longestGapMs} ms`,
    )
  }
  return reports
}

export function cordon({ api }: Site, node: string, unschedulable: boolean): Promise<unknown> {
  return api.merge(`/api/v1/nodes/${node}`, { spec: { unschedulable: unschedulable ? true : null } })
}

/** Lane devices of the node. */
export function laneDevices({ netns }: KubeNode): string {
  const links = execFileSync('ip', ['netns', 'exec', netns, 'ip', '-o', 'link'], { encoding: 'utf8' })
  return (links.match(/sealane\d+/g) ?? []).join(' ')
}

interface PodObject extends KubeObject {
  readonly spec: { readonly nodeName?: string }
  readonly status: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] }
}

async function gatewayPods({ api }: Site): Promise<readonly PodObject[]> {
  const selector = encodeURIComponent('app.kubernetes.io/component=gateway')
  return api.list<PodObject>(`/api/v1/namespaces/${SYSTEM}/pods?labelSelector=${selector}`)
}

export async function gatewayReady(site: Site, node: string): Promise<boolean> {
  const pod = (await gatewayPods(site)).find(({ spec }) => spec.nodeName === node)
  return pod?.status.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true
}

/** As kubectl rollout restart does. */
export async function restartGateways(site: Site, nodes: readonly string[]): Promise<void> {
  const before = (await gatewayPods(site)).map(({ metadata }) => metadata.uid)
  const annotations = { 'kubectl.kubernetes.io/restartedAt': new Date().toISOString() }
  const path = `/apis/apps/v1/namespaces/${SYSTEM}/daemonsets/sealane-gateway`
  await site.api.merge(path, { spec: { template: { metadata: { annotations } } } })
  const renewed = async (): Promise<boolean> => {
    const pods = await gatewayPods(site)
    const isNew = pods.length === nodes.length && pods.every(({ metadata }) => !before.includes(metadata.uid))
    return isNew && (await Promise.all(nodes.map((node) => gatewayReady(site, node)))).every(Boolean)
  }
  await eventually(renewed, { deadlineMs: 120_000, say: 'all gateways are new and ready' })
}

/** How many links of the node are up. */
export async function upLanes({ api }: Site, node: string): Promise<number> {
  const gateway = await api.find<Gateway & KubeObject>(`${OURS}/gateways/${node}`)
  return (gateway?.status?.connections ?? []).filter(({ state }) => state === 'up').length
}
