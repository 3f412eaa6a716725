/** What was read of a cluster, and the ways to look things up in it. Pure. */
import { at, nameOf, textAt } from './raw.ts'

export interface ClusterSnapshot {
  /** As `GET /version` answers. */
  readonly version: unknown
  /** Raw objects of all kinds, each with apiVersion and kind. */
  readonly objects: readonly unknown[]
  /** Names of all CustomResourceDefinitions; undefined when they could not be listed. */
  readonly crds: readonly string[] | undefined
  /** What the API server said to a Service with an address that cannot be, IPv4 and IPv6 (never created). */
  readonly serviceProbes: readonly string[]
  /** What could not be read. */
  readonly unread: readonly Unread[]
}

export interface Unread {
  /** `ConfigMap kube-system/kubeadm-config`, `Nodes`. */
  readonly what: string
  /** `not allowed`, or what the API server said. */
  readonly why: string
  /** Which findings rest on less because of it: `pod CIDRs`. */
  readonly weaker: readonly string[]
}

/** A snapshot with an index. */
export interface World {
  readonly snapshot: ClusterSnapshot
  /** The version is left out: what matters is what an object says, not by which door it came. */
  get(kind: string, name: string, namespace?: string): unknown
  /** In order of namespace and name. `group` distinguishes kinds that share a name ('' is core). */
  list(kind: string, group?: string): readonly unknown[]
}

export function openSnapshot(snapshot: ClusterSnapshot): World {
  const kinds = new Map<string, unknown[]>()
  for (const object of snapshot.objects) {
    const kind = textAt(object, 'kind')
    if (kind === undefined || nameOf(object) === '') continue
    const known = kinds.get(kind)
    if (known === undefined) kinds.set(kind, [object])
    else known.push(object)
  }
  const named = new Map<string, unknown[]>()
  for (const [kind, objects] of kinds) {
    objects.sort((a, b) => (sortKey(a) < sortKey(b) ? -1 : 1))
    for (const object of objects) {
      const key = `${kind}/${nameOf(object)}`
      const known = named.get(key)
      if (known === undefined) named.set(key, [object])
      else known.push(object)
    }
  }
  return {
    snapshot,
    get: (kind, name, namespace) =>
      named
        .get(`${kind}/${name}`)
        ?.find((object) => namespace === undefined || textAt(object, 'metadata', 'namespace') === namespace),
    list: (kind, group) => (kinds.get(kind) ?? []).filter((object) => group === undefined || groupOf(object) === group),
  }
}

function groupOf(object: unknown): string {
  const apiVersion = textAt(object, 'apiVersion') ?? ''
  return apiVersion.includes('/') ? (apiVersion.split('/')[0] ?? '') : ''
}

function sortKey(object: unknown): string {
  return `${textAt(object, 'metadata', 'namespace') ?? ''}/${nameOf(object)}`
}

/** The text of one key of a ConfigMap, and where it was found, for the account. */
export interface ConfigText {
  readonly text: string
  readonly where: string
}

/** The first of these ConfigMaps (`namespace/name`) that has one of these keys. */
export function configText(
  world: World,
  configMaps: readonly string[],
  keys: readonly string[],
): ConfigText | undefined {
  for (const path of configMaps) {
    const [namespace = '', name = ''] = path.split('/')
    const object = world.get('ConfigMap', name, namespace)
    for (const key of keys) {
      const text = textAt(object, 'data', key)
      if (text !== undefined) return { text, where: `ConfigMap ${path} ${key}` }
    }
  }
  return undefined
}

/** `spec.template.spec` of a workload, `spec` of a Pod. */
export function podSpecOf(object: unknown): unknown {
  return at(object, 'spec', 'template', 'spec') ?? at(object, 'spec')
}

/** Where an object lives, for the account: `DaemonSet kube-system/calico-node`. */
export function pathOf(object: unknown): string {
  const namespace = textAt(object, 'metadata', 'namespace')
  const name = nameOf(object)
  return `${textAt(object, 'kind') ?? 'object'} ${namespace === undefined ? name : `${namespace}/${name}`}`
}
