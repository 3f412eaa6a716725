/**
 * Objects that Sealane keeps in a cluster: About, slices, imports that are edited, that change, and that need a
 * namespace.
 */
import type { Test } from 'tap'
import { type Site, callers, helloService } from '../support/callers.ts'
import type { Json, KubeObject } from '../support/kube-request.ts'
import {
  awaitImport,
  exportService,
  findImport,
  importText,
  importedSlices,
  serviceImportPath,
  unexportService,
} from '../support/service-imports.ts'
import { expectCallers, inZone, namespace, same } from './expect.ts'
import type { Shop } from './shop.ts'

export async function aboutStory(t: Test, { both }: Shop): Promise<void> {
  for (const site of both) {
    const value = async (name: string): Promise<unknown> =>
      (await site.api.get<KubeObject & { spec: Json }>(`/apis/about.k8s.io/v1beta1/clusterproperties/${name}`)).spec[
        'value'
      ]
    t.equal(await value('cluster.clusterset.k8s.io'), site.name)
    t.equal(await value('clusterset.k8s.io'), 'default')
  }
}

export async function sliceStory(t: Test, { both, pods }: Shop): Promise<void> {
  for (const site of both) {
    for (const [source, count] of [
      ['c1', 2],
      ['c2', 1],
    ] as const) {
      const slices = await importedSlices(site, 'shop', 'from-both', source)
      const addresses = slices.flatMap(({ endpoints }) => endpoints.flatMap((endpoint) => endpoint.addresses))
      const wanted = [...pods[source]].filter(([name]) => name.startsWith('hello-')).map(([, address]) => address)
      t.same(addresses.sort(), wanted.sort(), `T21: ${count} endpoints from ${source} in ${site.name}`)
      for (const { metadata, addressType } of slices) {
        t.equal(addressType, 'IPv4')
        t.equal(metadata.labels?.['endpointslice.kubernetes.io/managed-by'], 'agent.sealane.io')
        t.notOk(metadata.labels?.['kubernetes.io/service-name'], 'kube-proxy does not take it for its own')
      }
    }
    const { status } = await awaitImport(site, 'shop', 'from-both')
    t.equal(status?.endpointSliceObjects, 'Present', `endpointSliceObjects in ${site.name}`)
    const named = await importedSlices(site, 'shop', 'named')
    const hostnames = named.map(({ endpoints }) => endpoints.map(({ hostname }) => hostname).sort())
    t.same(hostnames, [['named-0', 'named-1']], `T26: one slice with both hostnames in ${site.name}`)
  }
}

export async function repairStory(t: Test, { both }: Shop): Promise<void> {
  const path = serviceImportPath('shop', 'from-both')
  for (const site of both) {
    const reported = async (): Promise<unknown> => {
      const found = await findImport(site, 'shop', 'from-both')
      return [importText(found), found?.spec.ips, found?.status?.endpointSliceObjects, await sliceTexts(site)]
    }
    const before = JSON.stringify(await reported())
    const meddle: Readonly<Record<string, () => Promise<unknown>>> = {
      'its ports and address are edited': () =>
        site.api.merge(path, { spec: { ports: [{ name: 'x', port: 1, protocol: 'TCP' }], ips: ['245.0.255.250'] } }),
      'its status is edited': () => site.api.merge(`${path}/status`, { status: { clusters: [], conditions: [] } }),
      'it is deleted': () => site.api.delete(path),
      'its slices are deleted': async () => {
        for (const { metadata } of await importedSlices(site, 'shop', 'from-both')) {
          await site.api.delete(`/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/${metadata.name}`)
        }
      },
    }
    for (const [says, act] of Object.entries(meddle)) {
      await act()
      await same(t, async () => JSON.stringify(await reported()), before, `${says} in ${site.name}`)
    }
    await expectCallers(t, site, {
      name: 'from-both',
      port: 42,
      protocol: 'tcp',
      wanted: 'c1 c2',
      says: 'it still works',
    })
  }
}

async function sliceTexts(site: Site): Promise<readonly string[]> {
  const slices = await importedSlices(site, 'shop', 'from-both')
  return slices.map(({ metadata, endpoints }) => `${metadata.name} ${JSON.stringify(endpoints)}`).sort()
}

export async function stableStory(t: Test, { c1, c2, both }: Shop): Promise<void> {
  const ips = async (site: Site): Promise<string> =>
    (await awaitImport(site, 'shop', 'from-first')).spec.ips?.join(' ') ?? ''
  const before = await ips(c1)
  const service = helloService('from-first', { ports: [{ name: 'tcp', port: 80, targetPort: 42 }] })
  const steps: readonly (readonly [says: string, act: () => Promise<unknown>, wanted: string])[] = [
    ['a second exporter', () => exportService(c2, 'shop', 'from-first'), 'c1,c2'],
    ['the first one goes', () => unexportService(c1, 'shop', 'from-first'), 'c2'],
    [
      'other ports',
      () => c2.api.apply('/api/v1/namespaces/shop/services/from-first', service),
      'tcp:80/TCP Cluster from c2',
    ],
  ]
  for (const [says, act, wanted] of steps) {
    await act()
    for (const site of both) {
      const ends = async (): Promise<string> =>
        importText(await findImport(site, 'shop', 'from-first')).slice(-wanted.length)
      await same(t, ends, wanted, `${says}, in ${site.name}`)
      t.equal(await ips(site), before, `${says}: the address in ${site.name}`)
    }
  }
  for (const site of both) {
    const ask = (): Promise<string> =>
      callers(site, { namespace: 'shop', host: inZone('from-first'), port: 80, times: 5 })
    await same(t, ask, 'c2', `the new port answers from the other cluster, in ${site.name}`)
  }
}

export async function namespaceStory(t: Test, { c1, c2 }: Shop): Promise<void> {
  const path = '/api/v1/namespaces/north'
  const imports = async (site: Site): Promise<string> =>
    (await site.api.list(serviceImportPath('north', ''))).map(({ metadata }) => metadata.name).join(' ')
  await c1.api.apply(path, namespace('north'))
  await c1.api.apply(`${path}/services/web`, helloService('web'))
  await exportService(c1, 'north', 'web')
  await awaitImport(c1, 'north', 'web')
  // This is exported later and has arrived, so the earlier export would have arrived too.
  await c1.api.apply('/api/v1/namespaces/shop/services/after', helloService('after'))
  await exportService(c1, 'shop', 'after')
  await awaitImport(c2, 'shop', 'after')
  t.equal(await c2.api.find(path), undefined, 'the namespace is not made')
  t.equal(await imports(c2), '', 'and nothing is imported')
  await c2.api.apply(path, namespace('north'))
  await same(t, () => imports(c2), 'web', 'it comes with the namespace')
  await c2.api.delete(path)
  await same(t, async () => (await c2.api.find(path)) === undefined, true, 'a namespace with an import can be deleted')
  t.equal(await imports(c2), '', 'and the import goes with it')
  t.equal(await imports(c1), 'web', 'in the exporter all stays')
}
