/** Finds the object that contains the Corefile of a CoreDNS, the key in it, and the workload that reads it. */
import { parseCorefile, reloadsItself } from '../../model/cluster-dns/cluster-dns.ts'
import { refOf, titleOf, type ObjectRef } from '../../kubeapi/kube/kube.ts'
import { type ClusterDnsProblem, type DnsObject, type Effect, configMapRef, findObject } from './dns-change.ts'
import { corefileMounts, isDnsCache, isUnsureCache } from './dns-caches.ts'

export interface CorefileSource {
  readonly map: DnsObject
  readonly key: string
  readonly corefile: string
  readonly workload: ObjectRef
}

const KNOWN_MAPS = ['coredns', 'rke2-coredns-rke2-coredns']

/** The Corefile of the cluster's own CoreDNS. A cache in front of it is none, nor is what may be one. */
export function findClusterCorefile(present: readonly DnsObject[]): CorefileSource | ClusterDnsProblem {
  for (const workload of present.filter((object) => /^(Deployment|DaemonSet)$/.test(object.kind))) {
    if (isDnsCache(present, workload) || isUnsureCache(present, workload)) continue
    const [mount] = corefileMounts(workload)
    const map = mount && findObject(present, configMapRef(mount.map, workload.metadata.namespace))
    if (map !== undefined) return sourceInMap(map, mount?.key, refOf(workload))
  }
  const namespace = present.find(({ kind }) => kind === 'Deployment')?.metadata.namespace ?? 'kube-system'
  const known = KNOWN_MAPS.find((each) => findObject(present, configMapRef(each, namespace)) !== undefined)
  const name = known ?? 'coredns'
  const map = findObject(present, configMapRef(name, namespace))
  if (map === undefined) {
    return {
      kind: 'absent',
      message: `there is no ConfigMap ${namespace}/${name}, and no other one is known to hold the Corefile`,
      advice: ['Find out what answers DNS in this cluster (Service kube-system/kube-dns), and configure it by hand.'],
    }
  }
  return sourceInMap(map, undefined, { apiVersion: 'apps/v1', kind: 'Deployment', namespace, name })
}

/** The Corefile in a ConfigMap: below the key that is mounted, below `Corefile`, or in the only key with server blocks. */
export function sourceInMap(
  map: DnsObject,
  mounted: string | undefined,
  workload: ObjectRef,
): CorefileSource | ClusterDnsProblem {
  const data = map.data ?? {}
  const keys = [mounted, 'Corefile'].filter((key) => key !== undefined && Object.hasOwn(data, key))
  const others = Object.keys(data).filter((key) => hasServerBlock(data[key] ?? ''))
  const key = keys[0] ?? (others.length === 1 ? others[0] : undefined)
  const corefile = key === undefined ? undefined : data[key]
  if (key !== undefined && corefile !== undefined) return { map, key, corefile, workload }
  return {
    kind: 'unreadable',
    object: refOf(map),
    message: `${titleOf(refOf(map))} has no key Corefile, and not exactly one other key with server blocks`,
    advice: ['Configure your DNS by hand.'],
  }
}

function hasServerBlock(text: string): boolean {
  try {
    return parseCorefile(text).items.some((item) => item.kind === 'server')
  } catch {
    return false
  }
}

/** How a change of the Corefile, or of its imports, takes effect. */
export function effectOf(corefile: string, workload: ObjectRef): Effect {
  return reloadsItself(corefile) ? { how: 'by itself', withinSeconds: 120 } : { how: 'restart', workload }
}

const OTHER_OWNERS: readonly {
  readonly where: 'labels' | 'annotations'
  readonly key: RegExp
  readonly value?: string
  readonly who: string
}[] = [
  { where: 'labels', key: /^addonmanager\.kubernetes\.io\/mode$/, value: 'Reconcile', who: 'the addon manager' },
  { where: 'annotations', key: /^objectset\.rio\.cattle\.io\//, who: 'the k3s or RKE2 server' },
  { where: 'labels', key: /^app\.kubernetes\.io\/managed-by$/, value: 'Helm', who: 'a Helm release' },
  { where: 'labels', key: /^addon\.kops\.k8s\.io\/name$/, who: 'kOps, when it updates its add-ons,' },
  { where: 'labels', key: /^argocd\.argoproj\.io\//, who: 'Argo CD' },
  { where: 'annotations', key: /^argocd\.argoproj\.io\/tracking-id$/, who: 'Argo CD' },
  { where: 'labels', key: /^kustomize\.toolkit\.fluxcd\.io\//, who: 'Flux' },
  {
    where: 'labels',
    key: /^eks\.amazonaws\.com\/component$/,
    who: 'the EKS add-on, when it is updated with OVERWRITE,',
  },
]

/** A warning if another owner also writes this object. */
export function otherOwnerNotes(map: DnsObject): readonly string[] {
  const owner = OTHER_OWNERS.find(({ where, key, value }) =>
    Object.entries(map.metadata[where] ?? {}).some(([k, v]) => key.test(k) && (value === undefined || v === value)),
  )
  if (owner === undefined) return []
  return [
    `${titleOf(refOf(map))} is also written by ${owner.who} and may be reset; if so, put the block there too, or run this command again.`,
  ]
}
