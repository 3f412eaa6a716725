/** CRDs and manifests of install/, sent to an API server. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { ALL_CRDS } from '../../../install/crds/all-crds.ts'
import type { CustomResourceDefinition } from '../../../install/crds/custom-resource.ts'
import { planCrds } from '../../../install/crds/plan-crds.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type ControlPlane, startControlPlane } from './control-plane.ts'
import type { KubeRequest } from './kube-request.ts'

export const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'

/** An API server without nodes, with a namespace `shop`; it is stopped with the test. Cluster IPs are of IPv4. */
export async function planeWithShop(t: Test, serviceCIDR = '10.43.0.0/16'): Promise<ControlPlane> {
  const directory = join(temporaryFolder(t), 'plane')
  mkdirSync(directory)
  const cluster = await startControlPlane({ name: 'c1', directory, serviceCIDR })
  t.teardown(() => cluster.stop())
  const shop = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } }
  await cluster.api.apply('/api/v1/namespaces/shop', shop)
  return cluster
}

/** Gives what was done about each, by name. */
export async function applyCrds(api: KubeRequest): Promise<Map<string, string>> {
  const present = await api.list<CustomResourceDefinition>(CRDS)
  const decisions = planCrds(ALL_CRDS, new Map(present.map((crd) => [crd.metadata.name, crd])))
  for (const { name, crd } of decisions) {
    if (crd !== undefined) await api.apply(`${CRDS}/${name}`, crd)
  }
  return new Map(decisions.map(({ name, action }) => [name, action]))
}
