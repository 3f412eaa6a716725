/** Detects other products that join clusters, by their CRDs. For Cilium's Cluster Mesh see cni/cilium.ts. */
import type { Evidence } from './evidence.ts'
import type { World } from './snapshot.ts'

/** The products by their CRD, and whether they use the objects of multicluster.x-k8s.io themselves. */
export const OTHER_PRODUCTS: readonly { readonly crd: string; readonly name: string; readonly ownsMcs: boolean }[] = [
  { crd: 'submariners.submariner.io', name: 'Submariner', ownsMcs: true },
  { crd: 'clustersets.multicluster.crd.antrea.io', name: 'Antrea Multi-cluster', ownsMcs: true },
  { crd: 'resourcebindings.work.karmada.io', name: 'Karmada', ownsMcs: true },
  { crd: 'serviceexports.net.gke.io', name: 'GKE multi-cluster services', ownsMcs: false },
  { crd: 'foreignclusters.core.liqo.io', name: 'Liqo', ownsMcs: false },
  { crd: 'sites.skupper.io', name: 'Skupper', ownsMcs: false },
  { crd: 'links.multicluster.linkerd.io', name: 'Linkerd multicluster', ownsMcs: false },
]

export function otherProducts(world: World): Evidence[] {
  const crds = new Set(world.snapshot.crds ?? [])
  return OTHER_PRODUCTS.filter((row) => crds.has(row.crd)).map(({ crd, name, ownsMcs }) => ({
    about: 'other',
    value: { name, ownsMcs },
    confidence: 'likely',
    how: `CustomResourceDefinition ${crd}`,
  }))
}
