/** Namespace `shop` of two joined clusters: pods in both, and Services that one, both or none of them exports. */
import { eventually } from '../../support/eventually.ts'
import {
  type Site,
  helloDeployment,
  helloService,
  helloStatefulSet,
  openNamespace,
  readyPods,
} from '../support/callers.ts'
import type { JoinedClusters } from '../support/joined-clusters.ts'
import type { Json } from '../support/kube-request.ts'
import { awaitImport, exportService, importedSlices } from '../support/service-imports.ts'

export interface Shop {
  readonly c1: Site
  readonly c2: Site
  readonly both: readonly [Site, Site]
  /** The addresses of the pods in each cluster, by the pod's name. */
  readonly pods: { readonly c1: ReadonlyMap<string, string>; readonly c2: ReadonlyMap<string, string> }
}

interface ShopRow {
  readonly name: string
  /** The specs of the Services in addition to that of helloService(). Undefined: that cluster has no such Service. */
  readonly first?: Json
  readonly second?: Json
  /** The clusters that export it, oldest export first. */
  readonly exporters: readonly ('c1' | 'c2')[]
  /** The exporter whose ports the merge leaves out, so that it has no slice. */
  readonly without?: 'c2'
}

const HEADLESS = { clusterIP: 'None' }
const on4242 = (name: string): Json => ({ ports: [{ name, port: 4242, targetPort: 42 }] })

const ROWS: readonly ShopRow[] = [
  { name: 'secret', first: {}, second: {}, exporters: [] },
  { name: 'from-first', first: {}, second: {}, exporters: ['c1'] },
  { name: 'from-both', first: {}, second: {}, exporters: ['c1', 'c2'] },
  { name: 'other-number', first: {}, second: on4242('tcp'), exporters: ['c1', 'c2'], without: 'c2' },
  { name: 'other-name', first: {}, second: on4242('tcp2'), exporters: ['c1', 'c2'] },
  { name: 'node-port', first: { type: 'NodePort' }, exporters: ['c1'] },
  { name: 'load-balancer', first: { type: 'LoadBalancer' }, exporters: ['c1'] },
  { name: 'bare', first: HEADLESS, exporters: ['c1'] },
  { name: 'named', first: { ...HEADLESS, selector: { app: 'named' } }, exporters: ['c1'] },
]

/** Makes two pods of Deployment hello in c1, one in c2, two of StatefulSet named in c1, and a pod `request` in both. */
export async function openShop({ clusters }: JoinedClusters): Promise<Shop> {
  const [c1, c2] = clusters.map(({ row, plane }) => ({ name: row.name, api: plane.api, kubeconfig: plane.kubeconfig }))
  if (c1 === undefined || c2 === undefined) throw new Error('there are fewer than two clusters')
  const both = [c1, c2] as const
  await Promise.all([
    openNamespace(c1, 'shop', helloDeployment('c1', 2)),
    openNamespace(c2, 'shop', helloDeployment('c2')),
  ])
  await c1.api.apply('/apis/apps/v1/namespaces/shop/statefulsets/named', helloStatefulSet('c1', 'named', 2))
  await Promise.all(ROWS.map((row) => open(row, c1, c2)))
  const pods = { c1: await readyPods(c1, 'shop', 5), c2: await readyPods(c2, 'shop', 2) }
  // Cluster DNS caches NXDOMAIN for seconds, so no name may be queried before everything exists.
  for (const site of both) for (const row of ROWS) await allThere(site, row)
  return { c1, c2, both, pods }
}

async function open({ name, first, second, exporters }: ShopRow, c1: Site, c2: Site): Promise<void> {
  for (const [site, spec] of [
    [c1, first],
    [c2, second],
  ] as const) {
    if (spec !== undefined) await site.api.apply(`/api/v1/namespaces/shop/services/${name}`, helloService(name, spec))
  }
  for (const exporter of exporters) {
    const site = exporter === 'c1' ? c1 : c2
    await exportService(site, 'shop', name)
    // The next export must be younger than this one.
    await awaitImport(site, 'shop', name)
  }
}

async function allThere(site: Site, { name, exporters, without }: ShopRow): Promise<void> {
  for (const exporter of exporters.filter((one) => one !== without)) {
    await eventually(
      async () => {
        const slices = await importedSlices(site, 'shop', name, exporter)
        return slices.some(({ endpoints }) => endpoints.length > 0 && endpoints.every((one) => one.conditions?.ready))
      },
      { deadlineMs: 30_000, say: `endpoints of ${name} from ${exporter} in ${site.name}` },
    )
  }
}
