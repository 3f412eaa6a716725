/**
 * Clusters that were joined with labels of a company: the objects of the install have them, and so do those that the
 * parts make.
 */
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { type Site, helloService } from '../support/callers.ts'
import type { JoinedClusters } from '../support/joined-clusters.ts'
import type { KubeObject } from '../support/kube-request.ts'
import { awaitImport, exportService } from '../support/service-imports.ts'

/** The flags for each join of the world. */
export const MARK_FLAGS = ['--object-label', 'example.com/owner=net', '--pod-label', 'example.com/tier=infra']
export const OBJECT_LABEL = { key: 'example.com/owner', value: 'net' }
const POD_LABEL = { key: 'example.com/tier', value: 'infra' }

const SYSTEM = 'sealane-system'
const OURS = '/apis/sealane.io/v1alpha1'
const LISTS = [
  `/apis/apps/v1/namespaces/${SYSTEM}/deployments`,
  `/apis/apps/v1/namespaces/${SYSTEM}/daemonsets`,
  `/api/v1/namespaces/${SYSTEM}/pods`,
  `/api/v1/namespaces/${SYSTEM}/secrets`,
  `/apis/coordination.k8s.io/v1/namespaces/${SYSTEM}/leases`,
  `/apis/about.k8s.io/v1beta1/clusterproperties`,
  '/apis/multicluster.x-k8s.io/v1beta1/namespaces/marked/serviceimports',
  '/apis/discovery.k8s.io/v1/namespaces/marked/endpointslices?labelSelector=multicluster.kubernetes.io%2Fsource-cluster',
  ...['memberships', 'clusters', 'endpoints', 'gateways', 'routeagents'].map((plural) => `${OURS}/${plural}`),
]

export async function demandedMarks(t: Test, { sites }: JoinedClusters): Promise<void> {
  const [c1, ...others] = sites
  if (c1 === undefined) throw new Error('there is no cluster')
  for (const { api } of sites) await api.apply('/api/v1/namespaces/marked', namespace())
  await c1.api.apply('/api/v1/namespaces/marked/services/web', helloService('web'))
  await exportService(c1, 'marked', 'web')
  for (const site of sites) await awaitImport(site, 'marked', 'web')
  for (const site of [c1, ...others]) {
    await eventually(async () => (await unmarked(site)).length === 0, {
      deadlineMs: 60_000,
      say: `all of ${site.name} has its marks`,
    }).catch(async () => t.strictSame(await unmarked(site), [], site.name))
    for (const list of LISTS) t.not((await site.api.list(list)).length, 0, `${site.name}: there is some of ${list}`)
    const pods = await site.api.list(`/api/v1/namespaces/${SYSTEM}/pods`)
    t.ok(
      pods.every((pod) => has(pod, POD_LABEL)),
      `pods of ${site.name}`,
    )
  }
  const exported = await c1.api.get('/apis/multicluster.x-k8s.io/v1beta1/namespaces/marked/serviceexports/web')
  t.notOk(has(exported, OBJECT_LABEL), 'what is a user’s stays so')
}

async function unmarked({ api }: Site): Promise<string[]> {
  const lists = await Promise.all(LISTS.map(async (list) => ({ list, objects: await api.list(list) })))
  return lists.flatMap(({ list, objects }) =>
    objects.filter((object) => !has(object, OBJECT_LABEL)).map(({ metadata }) => `${list} ${metadata.name}`),
  )
}

function has({ metadata }: KubeObject, { key, value }: { readonly key: string; readonly value: string }): boolean {
  return metadata.labels?.[key] === value
}

function namespace(): { readonly apiVersion: string; readonly kind: string; readonly metadata: { name: string } } {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'marked' } }
}
