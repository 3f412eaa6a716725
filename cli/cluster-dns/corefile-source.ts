/** Finds the object that contains the Corefile of a CoreDNS, the key in it, and the workload that reads it. */
import { parseCorefile } from './corefile.ts'
import { refOf, titleOf, type ObjectRef } from '../../kubeapi/kube/kube.ts'
import { type ClusterDnsProblem, type DnsObject, type Effect, configMapRef, findObject } from './dns-change.ts'
import { reloadsItself } from './corefile-edit.ts'

export interface CorefileSource {
  readonly map: DnsObject
  readonly key: string
  readonly corefile: string
  readonly workload: ObjectRef
}

const NODE_LOCAL = /node-?local/
const KNOWN_MAPS = ['coredns', 'rke2-coredns-rke2-coredns']
const KNOWN_NODE_LOCAL_MAPS = ['node-local-dns', 'nodelocaldns']

/** The Corefile of the cluster's own CoreDNS. */
export function findClusterCorefile(present: readonly DnsObject[]): CorefileSource | ClusterDnsProblem {
  const names = KNOWN_MAPS.filter((name) => findObject(present, configMapRef(name)) !== undefined)
  return findSource(present, (name) => !NODE_LOCAL.test(name), names, 'coredns', 'Deployment')
}

/**
 * The Corefile of NodeLocal DNSCache, which answers pods in place of the cluster's CoreDNS. Undefined if there is none.
 */
export function findNodeLocalCorefile(present: readonly DnsObject[]): CorefileSource | ClusterDnsProblem | undefined {
  const names = KNOWN_NODE_LOCAL_MAPS.filter((name) => findObject(present, configMapRef(name)) !== undefined)
  if (names.length === 0) return undefined
  return findSource(present, (name) => NODE_LOCAL.test(name), names, 'node-local-dns', 'DaemonSet')
}

function findSource(
  present: readonly DnsObject[],
  wanted: (workload: string) => boolean,
  knownMaps: readonly string[],
  usualName: string,
  usualKind: string,
): CorefileSource | ClusterDnsProblem {
  for (const workload of present.filter(
    ({ kind, metadata }) => /^(Deployment|DaemonSet)$/.test(kind) && wanted(metadata.name),
  )) {
    const mount = corefileMount(workload)
    const map = mount && findObject(present, configMapRef(mount.map, workload.metadata.namespace))
    if (map !== undefined) return inMap(map, mount?.key, refOf(workload))
  }
  const map = findObject(present, configMapRef(knownMaps[0] ?? usualName))
  if (map === undefined) {
    return {
      kind: 'absent',
      message: `there is no ConfigMap kube-system/${usualName}, and no other one is known to hold the Corefile`,
      advice: ['Find out what answers DNS in this cluster (Service kube-system/kube-dns), and configure it by hand.'],
    }
  }
  const name = knownMaps[0] ?? usualName
  return inMap(map, undefined, { apiVersion: 'apps/v1', kind: usualKind, namespace: 'kube-system', name })
}

function inMap(map: DnsObject, mounted: string | undefined, workload: ObjectRef): CorefileSource | ClusterDnsProblem {
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

interface PodSpec {
  readonly containers?: readonly { readonly args?: readonly string[]; readonly volumeMounts?: readonly VolumeMount[] }[]
  readonly volumes?: readonly {
    readonly name?: string
    readonly configMap?: {
      readonly name?: string
      readonly items?: readonly { readonly key?: string; readonly path?: string }[]
    }
  }[]
}
interface VolumeMount {
  readonly name?: string
  readonly mountPath?: string
}

/** The value of `-conf FILE` or `-conf=FILE`, as Go reads flags. */
function confOf(args: readonly string[]): string | undefined {
  const at = args.findIndex((arg) => /^--?conf(?:=|$)/.test(arg))
  const flag = args[at]
  if (flag === undefined) return undefined
  return flag.includes('=') ? flag.slice(flag.indexOf('=') + 1) : args[at + 1]
}

/** Follows `-conf /etc/coredns/Corefile` to the ConfigMap that is mounted there. */
function corefileMount(workload: DnsObject): { readonly map: string; readonly key: string | undefined } | undefined {
  const pod = (workload.spec?.['template'] as { readonly spec?: PodSpec } | undefined)?.spec ?? {}
  for (const { args = [], volumeMounts = [] } of pod.containers ?? []) {
    const path = confOf(args)
    if (path === undefined || !path.startsWith('/')) continue
    const file = path.slice(path.lastIndexOf('/') + 1)
    const folder = path.slice(0, path.lastIndexOf('/'))
    const volume = volumeMounts.find((mount) => mount.mountPath?.replace(/\/$/, '') === folder)?.name
    const source = pod.volumes?.find(({ name }) => name === volume)?.configMap
    if (volume === undefined || source?.name === undefined) continue
    return {
      map: source.name,
      key: source.items === undefined ? file : source.items.find((item) => item.path === file)?.key,
    }
  }
  return undefined
}

/**
 * The name of the ConfigMap that is mounted in the directory from which a top-level import of the Corefile reads
 * `*.server`.
 */
export function customMapName(present: readonly DnsObject[], workload: ObjectRef, pattern: string): string {
  const object = findObject(present, workload)
  const pod = (object?.spec?.['template'] as { readonly spec?: PodSpec } | undefined)?.spec ?? {}
  const folder = pattern.slice(0, pattern.lastIndexOf('/'))
  const mounts = (pod.containers ?? []).flatMap(({ volumeMounts = [] }) => volumeMounts)
  const volume = mounts.find(({ mountPath = '' }) => mountPath === folder || mountPath.endsWith(`/${folder}`))?.name
  return pod.volumes?.find(({ name }) => name === volume && name !== undefined)?.configMap?.name ?? 'coredns-custom'
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
