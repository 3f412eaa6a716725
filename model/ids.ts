/**
 * Names that identify things across the clusterset: clusters, services, records. All parsers here throw
 * InvalidNameError with the field, the value and what was expected.
 */
import { createHash } from 'node:crypto'
import { SYSTEM_NAMESPACE } from './spec-constants.ts'
import { isDnsLabel } from './values/values.ts'

export { isDnsLabel, isDnsSubdomain, isLabelValue, isObjectName, isQualifiedName } from './values/values.ts'

/** RFC 1123 label. A cluster id is used as a label value and as one DNS label (KEP-1645 "DNS"). */
export type ClusterId = string & { readonly __brand: 'ClusterId' }

/** `namespace/name` of a Service, ServiceExport or ServiceImport. */
export type ServiceKey = `${string}/${string}`

export class InvalidNameError extends Error {
  static readonly code = 'INVALID_NAME'
  readonly field: string
  readonly value: string
  constructor(field: string, value: string, expected: string) {
    super(`${field} ${JSON.stringify(value.slice(0, 300))}: expected ${expected}`)
    this.name = 'InvalidNameError'
    this.field = field
    this.value = value
  }
}

/** The namespaces of an installation with the default names. */
const OWN_NAMESPACES: ReadonlySet<string> = new Set([SYSTEM_NAMESPACE, 'sealane-broker'])

/** The names and prefixes that guardedNamespace() checks, for code that states the same rule in another language. */
export const GUARDED_NAMESPACES: readonly string[] = [...OWN_NAMESPACES, 'default']
export const GUARDED_PREFIXES: readonly string[] = ['kube-', 'openshift']

/**
 * Returns why a namespace is guarded, as a phrase to follow its name; undefined for all others. Without an operator's
 * permission, nothing is exported from or imported into a guarded namespace: names in the platform's and our own
 * namespaces are trusted, and `default` contains the objects of every cluster that name no namespace.
 */
export function guardedNamespace(namespace: string): string | undefined {
  if (GUARDED_PREFIXES.some((prefix) => namespace.startsWith(prefix))) return 'is a system namespace'
  if (OWN_NAMESPACES.has(namespace)) return 'is a namespace of Sealane itself'
  return namespace === 'default' ? 'is the default for objects that name no namespace' : undefined
}

/** Lists of a member about its namespaces, for exports and imports alike. */
export interface NamespaceLists {
  /** Namespaces that may be used although they are guarded or excluded. */
  readonly allowed?: readonly string[] | undefined
  /** Namespaces that are not used, in addition to the guarded ones. */
  readonly excluded?: readonly string[] | undefined
}

/**
 * Returns why a member exports nothing from a namespace and imports nothing into it, as a phrase to follow its name;
 * undefined if it may. What the lists allow counts first. The broker has a list of its own for guarded namespaces, and
 * may refuse an export that the member allows.
 */
export function excludedNamespace(namespace: string, lists: NamespaceLists): string | undefined {
  if (lists.allowed?.includes(namespace) === true) return undefined
  return unexportedNamespace(namespace, lists) ?? guardedNamespace(namespace)
}

/**
 * As excludedNamespace(), without the guarded namespaces. For those who see in the conditions of an export whether it
 * was accepted: a node may read the Membership that an agent of an earlier release has written, without the lists.
 */
export function unexportedNamespace(
  namespace: string,
  { allowed = [], excluded = [] }: NamespaceLists,
): string | undefined {
  const isExcluded = excluded.includes(namespace) && !allowed.includes(namespace)
  return isExcluded ? 'is among the excludedNamespaces of this cluster' : undefined
}

/** Returns the value as a ClusterId. Throws InvalidNameError. Stricter than KEP-2149, which allows dots. */
export function parseClusterId(value: string, field = 'cluster id'): ClusterId {
  if (!isDnsLabel(value)) throw new InvalidNameError(field, value, 'an RFC 1123 label: 1 to 63 of a-z, 0-9 and -')
  return value as ClusterId
}

/** Words that the clusterset, its commands or JavaScript use for other things. */
const RESERVED_IDS: ReadonlySet<string> = new Set(['any', 'broker', 'constructor', 'prototype', 'sealane', 'self'])
const RESERVED_PREFIXES = ['kube-', 'sealane-']

/**
 * True for ids under which no cluster may join, since a reader of a name, log or list would mistake them for something
 * else. Members that joined earlier with such an id keep it.
 */
export function isReservedId(id: string): boolean {
  return RESERVED_IDS.has(id) || RESERVED_PREFIXES.some((prefix) => id.startsWith(prefix))
}

/** A phrase that follows an id. */
export const RESERVED_ID_PROBLEM =
  'is reserved: expected an id that names the cluster, not kube-*, sealane-* or a word of the clusterset'

/** Returns the value. Throws InvalidNameError unless it is an RFC 1123 label. */
export function parseDnsLabel(value: string, field: string): string {
  if (!isDnsLabel(value)) throw new InvalidNameError(field, value, 'an RFC 1123 label: 1 to 63 of a-z, 0-9 and -')
  return value
}

export function serviceKey(namespace: string, name: string): ServiceKey {
  return `${namespace}/${name}`
}

// Short fingerprints for object names that consist of several parts. Pure.

/** Returns 16 hexadecimal digits of SHA-256: too many to find a second text with the same digits on purpose. */
export function nameHash(...parts: readonly string[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 16)
}
