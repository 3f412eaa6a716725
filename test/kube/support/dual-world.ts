/** Namespace `shop` of joined clusters with IPv4 and IPv6: a pod that answers and one that calls in each. */
import { isIP } from 'node:net'
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type Site, helloService, onNode, openForCalls } from './callers.ts'
import { type Both, type Family, dualPods, dualTemplate } from './dual-hello.ts'
import { joinClusters } from './joined-clusters.ts'
import type { Json } from './kube-request.ts'
import { dumpNode } from './node-dump.ts'
import type { Image } from './node.ts'
import { awaitImport, exportService, findImport, importedSlices } from './service-imports.ts'
import { type ClusterRow, type TestClusters, startClusters } from './two-clusters.ts'
import { type WireCounts, watchWire } from './wire-watch.ts'

export interface DualWorld {
  readonly directory: string
  readonly clusters: TestClusters
  readonly c1: Site
  readonly c2: Site
  /** All of them, in the order of the rows. */
  readonly sites: readonly Site[]
  /** Addresses of the pod that answers and of the one that calls, by the cluster's name. */
  readonly pods: ReadonlyMap<string, { readonly hello: Both; readonly request: Both }>
  /** Kernels of all nodes before anything of ours came. */
  readonly kernels: ReadonlyMap<string, string>
  /** What has passed between the nodes since the clusters were joined. */
  readonly wire: () => WireCounts
}

/** Specs of Services: one of both families, a headless one, and one of IPv6 alone. */
export const SERVICES: Readonly<Record<string, Json>> = {
  web: { ipFamilyPolicy: 'PreferDualStack' },
  bare: { ipFamilyPolicy: 'PreferDualStack', clusterIP: 'None' },
  six: { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv6'] },
}

export interface DualWorldInit {
  /** The first node of a row becomes its gateway; the pods are on the last one. */
  readonly rows: readonly ClusterRow[]
  /** Exported from the first cluster, each with the spec of its Service. */
  readonly services: Readonly<Record<string, Json>>
  /** What every node can run besides. */
  readonly images?: Readonly<Record<string, Image>>
}

/** Starts and joins them, and waits until every service is imported everywhere. Everything ends with the test. */
export async function startDualWorld(t: Test, { rows, services, images = {} }: DualWorldInit): Promise<DualWorld> {
  const directory = temporaryFolder(t)
  const clusters = await startClusters({ directory, rows, images })
  t.teardown(() => clusters.stop())
  const sites = clusters.clusters.map(({ row, plane }) => ({
    name: row.name,
    api: plane.api,
    kubeconfig: plane.kubeconfig,
  }))
  const [c1, c2] = sites
  if (c1 === undefined || c2 === undefined) throw new Error('there are fewer than two clusters')
  await Promise.all(sites.map((site, i) => openPods(site, rows[i]?.nodes.at(-1) ?? '')))
  const pods = new Map(await Promise.all(sites.map(async (site) => [site.name, await podsOf(site)] as const)))
  const kernels = new Map(clusters.clusters.flatMap(({ nodes }) => nodes.map((node) => [node.name, dumpNode(node)])))
  const wire = watchWire(
    clusters.underlay.wan,
    rows.flatMap(({ podCIDR }) => podCIDR.split(',')),
  )
  await joinClusters(clusters, directory, (line) => t.comment(line))
  for (const [name, spec] of Object.entries(services)) await offer(c1, name, spec)
  // Cluster DNS keeps "no such name" for seconds: nobody asks before all is there.
  for (const site of sites) for (const name of Object.keys(services)) await allThere(site, name)
  return { directory, clusters, c1, c2, sites, pods, kernels, wire }
}

/** Makes the Service in front of the pods that answer, and exports it. */
export async function offer(site: Site, name: string, spec: Json): Promise<void> {
  await site.api.apply(`/api/v1/namespaces/shop/services/${name}`, helloService(name, { ...spec, ports: PORTS }))
  await exportService(site, 'shop', name)
}

const PORTS: readonly Json[] = [
  { name: 'tcp', port: 42, protocol: 'TCP' },
  { name: 'udp', port: 42, protocol: 'UDP' },
  { name: 'big', port: 43, protocol: 'TCP' },
]

async function openPods(site: Site, node: string): Promise<void> {
  await openForCalls(site, 'shop', node)
  const labels = { app: 'hello' }
  const template = onNode(dualTemplate(site.name, labels), node)
  const spec = { replicas: 1, selector: { matchLabels: labels }, template }
  const body = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'hello' }, spec }
  await site.api.apply('/apis/apps/v1/namespaces/shop/deployments/hello', body)
}

async function podsOf(site: Site): Promise<{ readonly hello: Both; readonly request: Both }> {
  const pods = await dualPods(site, 'shop', 2)
  const [hello] = [...pods].filter(([name]) => name.startsWith('hello-')).map(([, addresses]) => addresses)
  const request = pods.get('request')
  if (hello === undefined || request === undefined)
    throw new Error(`${site.name} has the pods ${[...pods.keys()].join()}`)
  return { hello, request }
}

async function allThere(site: Site, name: string): Promise<void> {
  await awaitImport(site, 'shop', name)
  await eventually(
    async () => (await importedSlices(site, 'shop', name, 'c1')).some(({ endpoints }) => endpoints.length),
    {
      deadlineMs: 30_000,
      say: `endpoints of ${name} in ${site.name}`,
    },
  )
}

/** An import in words: its type, its families, the families of its addresses, and where it comes from. */
export async function importShape(site: Site, name: string): Promise<string> {
  const found = await findImport(site, 'shop', name)
  if (found === undefined) return 'none'
  const { type, ipFamilies = [], ips = [] } = found.spec
  const clusters = (found.status?.clusters ?? []).map(({ cluster }) => cluster).sort()
  return [type, ipFamilies.join(), ips.map((ip) => `ip${isIP(ip)}`).join(), `from ${clusters.join()}`].join(' ')
}

/** The endpoints that the import of a service has in a cluster, such as "IPv4 10.42.0.4, IPv6 fd00:42::4". */
export async function sliceText(site: Site, name: string): Promise<string> {
  const slices = await importedSlices(site, 'shop', name)
  const texts = slices.map(({ addressType, endpoints }) =>
    [addressType, ...endpoints.flatMap(({ addresses }) => addresses)].join(' '),
  )
  return texts.sort().join(', ')
}

/** Who calls from that cluster, as the one who is called must see it. */
export function answerOf(world: DualWorld, answering: string, caller: Site, family: Family): string {
  return `${answering} ${world.pods.get(caller.name)?.request[family] ?? ''}`
}
