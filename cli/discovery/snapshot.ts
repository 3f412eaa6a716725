/** The snapshot of a cluster, and functions to look up objects and fields in it. Pure. */
import { parseYaml } from '../../kubeapi/kubeapi.ts'

export interface ClusterSnapshot {
  /** The response of `GET /version`. */
  readonly version: unknown
  /** Unparsed objects of all kinds, each with apiVersion and kind. */
  readonly objects: readonly unknown[]
  /** The names of all CustomResourceDefinitions. Undefined if they could not be listed. */
  readonly crds: readonly string[] | undefined
  /** The API server's answers to dry runs of Services with an invalid IPv4 and IPv6 address. */
  readonly serviceProbes: readonly string[]
  /** The objects that could not be read. */
  readonly unread: readonly Unread[]
}

export interface Unread {
  /** `ConfigMap kube-system/kubeadm-config`, `Nodes`. */
  readonly what: string
  /** `not allowed`, or the error of the API server. */
  readonly why: string
  /** There are more objects than were read. */
  readonly isCut?: true
  /** The findings that are less reliable because of it: `pod CIDRs`. */
  readonly weaker: readonly string[]
}

/** A snapshot with an index. */
export interface World {
  readonly snapshot: ClusterSnapshot
  /**
   * Ignores the API version, because the content of an object is the same in all versions. ConfigMaps and workloads are
   * found by product.ts only, in the namespace that the product is in.
   */
  get<K extends string>(kind: K & (K extends ProductKind ? never : string), name: string, namespace?: string): unknown
  /** Sorted by namespace and name. `group` distinguishes kinds of the same name ('' is the core group). */
  list(kind: string, group?: string): readonly unknown[]
}

/** The kinds whose objects belong to a product: see findProduct(). */
type ProductKind = 'ConfigMap' | 'DaemonSet' | 'Deployment'

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

/** `spec.template.spec` of a workload, `spec` of a Pod. */
export function podSpecOf(object: unknown): unknown {
  return at(object, 'spec', 'template', 'spec') ?? at(object, 'spec')
}

/** The kind and name of an object for messages: `DaemonSet kube-system/calico-node`. */
export function pathOf(object: unknown): string {
  const namespace = textAt(object, 'metadata', 'namespace')
  const name = nameOf(object)
  return `${textAt(object, 'kind') ?? 'object'} ${namespace === undefined ? name : `${namespace}/${name}`}`
}

// Reads command lines and environment variables of the containers in a workload. Pure.

export function containersOf(workload: unknown): readonly unknown[] {
  const spec = podSpecOf(workload)
  return [...listAt(spec, 'containers'), ...listAt(spec, 'initContainers')]
}

/** The value of `--name=value` or `--name value`; 'true' for `--name` without a value. The last occurrence counts. */
export function flagOf(workload: unknown, name: string): string | undefined {
  return containersOf(workload)
    .map((container) => flagIn(wordsOf(container), name))
    .find((value) => value !== undefined)
}

/** Splits a shell command line that is one argument, as in GKE. */
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

/** The static pods of a control plane component, by the label in the kubelet's manifests, or by name. */
export function partPods(world: World, component: string): readonly unknown[] {
  return world
    .list('Pod')
    .filter(
      (pod) =>
        textAt(pod, 'metadata', 'labels', 'component') === component ||
        (textAt(pod, 'metadata', 'name') ?? '').startsWith(`${component}-`),
    )
}

// Reads fields of objects from a cluster, whose structure is not trusted: every function accepts any value and returns
// undefined or an empty list if the structure differs. Pure.

/** The value at a path of own keys and list indexes. Undefined if the path does not exist. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let here = value
  for (const key of path) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, key)) return undefined
    here = (here as Readonly<Record<string | number, unknown>>)[key]
  }
  return here
}

/** The string at a path. Undefined if there is none or if it is empty. */
export function textAt(value: unknown, ...path: readonly (string | number)[]): string | undefined {
  const found = at(value, ...path)
  return typeof found === 'string' && found !== '' ? found : undefined
}

/** The list at a path, cut to a thousand entries. Empty if there is no list. */
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

/** Parses YAML or JSON in a string, such as a file in a ConfigMap. Undefined if it is neither. */
export function documentIn(text: string | undefined): unknown {
  if (text === undefined || text.length > 200_000) return undefined
  try {
    return parseYaml(text)
  } catch {
    return undefined
  }
}

/**
 * Replaces control characters in names from a cluster, which could otherwise control the terminal, break a line or
 * reverse the text direction.
 */
export function printable(text: string): string {
  return printableText(text.slice(0, 200))
}

/** The same for a text of any length. */
export function printableText(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '?')
}
