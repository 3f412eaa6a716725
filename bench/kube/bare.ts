/** How long API servers take for the same work without Sealane in between. */
import { DISCOVERY, ENDPOINTS, FLOOR, MCS, PROBE, PROBES, SHOP, atOnce, sliceObject } from './objects.ts'
import type { BenchCluster, BenchLab } from './lab.ts'
import { Watch } from './watch.ts'

/** Writes objects of the same kinds and sizes as the agents write, into several clusters at once, and removes them. */
export async function measureBareWrites(
  clusters: readonly BenchCluster[],
  services: readonly string[],
): Promise<number> {
  const started = performance.now()
  await Promise.all(clusters.map((cluster) => atOnce(bareWrites(cluster, services))))
  const ms = performance.now() - started
  for (const { api } of clusters) {
    await api.delete(`${DISCOVERY}/namespaces/${FLOOR}/endpointslices`)
    await api.delete(`${MCS}/namespaces/${FLOOR}/serviceimports`)
  }
  return ms
}

function bareWrites({ api }: BenchCluster, services: readonly string[]): (() => Promise<unknown>)[] {
  const ports = [{ name: 'http', protocol: 'TCP', port: 80 }]
  const slices = services.map((name, i) => () => {
    const slice = sliceObject(name, name, { first: i * ENDPOINTS, count: ENDPOINTS })
    return api.apply(`${DISCOVERY}/namespaces/${FLOOR}/endpointslices/${name}`, slice)
  })
  const imports = services.map((name) => async () => {
    const path = `${MCS}/namespaces/${FLOOR}/serviceimports/${name}`
    const object = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceImport', metadata: { name } }
    await api.apply(path, { ...object, spec: { type: 'ClusterSetIP', ips: ['245.0.0.1'], ports } })
    await api.apply(`${path}/status`, { ...object, status: { clusters: [{ cluster: 'milano' }] } })
  })
  return [...slices, ...imports]
}

/** Writes an object in one cluster, waits until a watch shows it, and then does the same in the other cluster. */
export class BareChain {
  readonly #lab: BenchLab
  readonly #watches: readonly [Watch, Watch]

  private constructor(lab: BenchLab, watches: readonly [Watch, Watch]) {
    this.#lab = lab
    this.#watches = watches
  }

  static async open(lab: BenchLab): Promise<BareChain> {
    const path = `${PROBES}/namespaces/${SHOP}/probes`
    const { exporter, importer } = lab
    return new BareChain(lab, [await Watch.open(exporter.plane, path), await Watch.open(importer.plane, path)])
  }

  async run(name: string): Promise<number> {
    const { exporter, importer } = this.#lab
    const started = performance.now()
    const writes: Promise<unknown>[] = []
    let at = started
    for (const [i, { api }] of [exporter, importer].entries()) {
      const seen = (this.#watches[i] as Watch).next(`probe ${name}`, ({ object }) => object.metadata.name === name)
      writes.push(api.post(`${PROBES}/namespaces/${SHOP}/probes`, { ...PROBE, metadata: { name } }))
      at = (await seen).at
    }
    await Promise.all(writes)
    return at - started
  }

  close(): void {
    for (const watch of this.#watches) watch.close()
  }
}
