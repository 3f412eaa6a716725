/** What was read of a cluster, and the ways to look things up in it. Pure. */
import { parseYaml } from '../../kubeapi/kubeapi.ts'

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

// Command lines and environment of the containers in a workload. Pure.

export function containersOf(workload: unknown): readonly unknown[] {
  const spec = podSpecOf(workload)
  return [...listAt(spec, 'containers'), ...listAt(spec, 'initContainers')]
}

/** The value of `--name=value` or `--name value`; 'true' for a bare `--name`. The last one counts, as flags go. */
export function flagOf(workload: unknown, name: string): string | undefined {
  return containersOf(workload)
    .map((container) => flagIn(wordsOf(container), name))
    .find((value) => value !== undefined)
}

/** A whole command line for a shell in one word, as GKE writes it, is taken apart. */
function wordsOf(container: unknown): string[] {
  const words = [...textsAt(container, 'command'), ...textsAt(container, 'args')]
  return words.flatMap((word) => (word.includes(' --') ? word.split(/\s+/) : [word]))
}

export function flagIn(words: readonly string[], name: string): string | undefined {
  const i = words.findLastIndex((word) => word === `--${name}` || word.startsWith(`--${name}=`))
  const word = words[i]
  if (word === undefined) return undefined
  if (word !== `--${name}`) return word.slice(name.length + 3)
  const next = words[i + 1]
  return next === undefined || next.startsWith('-') ? 'true' : next
}

export function environmentOf(workload: unknown, name: string): string | undefined {
  return containersOf(workload)
    .flatMap((container) => listAt(container, 'env'))
    .filter((entry) => textAt(entry, 'name') === name)
    .map((entry) => textAt(entry, 'value'))
    .find((value) => value !== undefined)
}

/** The pods of a static part of the control plane, by the label that the kubelet's manifests carry, or by name. */
export function partPods(world: World, component: string): readonly unknown[] {
  return world
    .list('Pod')
    .filter(
      (pod) =>
        textAt(pod, 'metadata', 'labels', 'component') === component ||
        (textAt(pod, 'metadata', 'name') ?? '').startsWith(`${component}-`),
    )
}

/** Where CNIs live. A tenant's DaemonSet that happens to have the name of one says nothing. */
const SYSTEM_NAMESPACES = new Set([
  'antrea-system',
  'calico-system',
  'cilium',
  'cilium-system',
  'kube-flannel',
  'kube-router',
  'kube-system',
  'openshift-ovn-kubernetes',
  'ovn-kubernetes',
])

/** The first DaemonSet with one of these names, in a namespace of the system. */
export function daemonSet(world: World, ...names: readonly string[]): unknown {
  const all = world.list('DaemonSet').filter((one) => SYSTEM_NAMESPACES.has(textAt(one, 'metadata', 'namespace') ?? ''))
  return names
    .map((name) => all.find((one) => textAt(one, 'metadata', 'name') === name))
    .find((object) => object !== undefined)
}

// Looking into objects that a cluster gave us. Nothing about them is believed: every look is safe on any value and
// gives undefined or nothing where the shape is another one. Pure.

/** The value below own keys and list positions; undefined where the way ends. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let here = value
  for (const key of path) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, key)) return undefined
    here = (here as Readonly<Record<string | number, unknown>>)[key]
  }
  return here
}

/** A text that is not empty. */
export function textAt(value: unknown, ...path: readonly (string | number)[]): string | undefined {
  const found = at(value, ...path)
  return typeof found === 'string' && found !== '' ? found : undefined
}

/** A list, at most a thousand entries of it; none where there is no list. */
export function listAt(value: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const found = at(value, ...path)
  return Array.isArray(found) ? (found.slice(0, 1000) as unknown[]) : []
}

export function textsAt(value: unknown, ...path: readonly (string | number)[]): string[] {
  return listAt(value, ...path).filter((entry) => typeof entry === 'string')
}

export function keysAt(value: unknown, ...path: readonly (string | number)[]): string[] {
  const found = at(value, ...path)
  return typeof found === 'object' && found !== null && !Array.isArray(found) ? Object.keys(found) : []
}

export function nameOf(object: unknown): string {
  return textAt(object, 'metadata', 'name') ?? ''
}

export function labelOf(object: unknown, key: string): string | undefined {
  const found = at(object, 'metadata', 'labels', key)
  return typeof found === 'string' ? found : undefined
}

export function annotationOf(object: unknown, key: string): string | undefined {
  return textAt(object, 'metadata', 'annotations', key)
}

/** YAML or JSON inside a text, such as a file in a ConfigMap; undefined when it is neither. */
export function documentIn(text: string | undefined): unknown {
  if (text === undefined || text.length > 200_000) return undefined
  try {
    return parseYaml(text)
  } catch {
    return undefined
  }
}

/** Names from a cluster must not steer the reader's terminal, break a line or turn the text round. */
export function printable(text: string): string {
  return text.slice(0, 200).replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '?')
}
