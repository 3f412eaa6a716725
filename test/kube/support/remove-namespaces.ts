/** Takes out of joined clusters what a story has exported, and where. */
import { eventually } from '../../support/eventually.ts'
import type { Site } from './callers.ts'
import { serviceImportPath, unexportService } from './service-imports.ts'

const IN_TIME = { deadlineMs: 90_000, intervalMs: 200 }

/**
 * Exports first, and then their imports, so that no agent writes into a namespace that is ending; then the namespaces.
 * Resolves when nothing of them is left in any cluster.
 */
export async function removeNamespaces(sites: readonly Site[], namespaces: readonly string[]): Promise<void> {
  await everywhere(sites, namespaces, unexportAll)
  await everywhere(sites, namespaces, async (site, namespace) => {
    const say = `nothing is imported into ${namespace} of ${site.name}`
    await eventually(async () => (await site.api.list(serviceImportPath(namespace, ''))).length === 0, {
      ...IN_TIME,
      say,
    })
  })
  await everywhere(sites, namespaces, async ({ name, api }, namespace) => {
    const path = `/api/v1/namespaces/${namespace}`
    await api.delete(path)
    await eventually(async () => (await api.find(path)) === undefined, {
      ...IN_TIME,
      say: `namespace ${namespace} of ${name} is gone`,
    })
  })
}

async function everywhere(
  sites: readonly Site[],
  namespaces: readonly string[],
  act: (site: Site, namespace: string) => Promise<void>,
): Promise<void> {
  await Promise.all(sites.flatMap((site) => namespaces.map((namespace) => act(site, namespace))))
}

async function unexportAll(site: Site, namespace: string): Promise<void> {
  const path = `/apis/multicluster.x-k8s.io/v1beta1/namespaces/${namespace}/serviceexports`
  const exports = await site.api.list(path)
  await Promise.all(exports.map(({ metadata }) => unexportService(site, namespace, metadata.name)))
}
