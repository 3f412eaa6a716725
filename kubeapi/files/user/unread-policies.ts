/**
 * What closes while a policy of the user cannot be read. A file that was valid before keeps its last good version. One
 * that never was may hold the only policy of a service, which would be open to all members without it. Pure.
 */
import { ANNOTATION_UNREAD_FILE } from '../../../model/access/access.ts'
import {
  CLUSTER_ACCESS_POLICY_NAME,
  type AccessPolicy,
  type ClusterAccessPolicy,
  type KubeObject,
  isDnsLabel,
} from '../../../model/model.ts'
import { keyOf } from '../../driver/driver.ts'
import { readValues } from '../yaml-source.ts'
import type { ParsedObject } from './parse-objects.ts'

/** The policies that an invalid file may hold. */
export interface UnreadPolicies {
  /** Namespaces of its AccessPolicies. Undefined: it may be about any. */
  readonly namespaces: ReadonlySet<string> | undefined
  /** It may hold the ClusterAccessPolicy, or one that limits which members this cluster may call. */
  readonly ofCluster: 'none' | 'default' | 'egress'
}

/**
 * What a file may hold whose text nobody can read: AccessPolicies of any namespace. Calls of this cluster stay as they
 * are, because the file may be about anything else.
 */
export const UNREADABLE: UnreadPolicies = { namespaces: undefined, ofCluster: 'none' }

const GROUP = 'sealane.io'
/** The kind as a field of a text that is no YAML. */
const NAMED = /(?:^|[{,\s-])["']?kind["']?[ \t]*:[ \t]*["']?(Cluster)?AccessPolicy(?:List)?\b/g
const COMMENT = /(^|[ \t])#[^\n]*/gm

/** Takes the text of a file that is not valid. Undefined if none of it is a policy. */
export function unreadPolicies(text: string): UnreadPolicies | undefined {
  const values = readValues(text)
  const found = values === undefined ? findNamed(text) : values.flatMap((value) => findIn(value, undefined))
  if (found.length === 0) return undefined
  const places = found.flatMap((one) => (one.kind === 'AccessPolicy' ? [one.namespace] : []))
  const isSomewhere = places.includes(undefined)
  const ofCluster = found.filter(({ kind }) => kind === 'ClusterAccessPolicy')
  return {
    namespaces: isSomewhere ? undefined : new Set(places.flatMap((one) => one ?? [])),
    ofCluster:
      ofCluster.length === 0 ? 'none' : ofCluster.some(({ limitsCalls }) => limitsCalls) ? 'egress' : 'default',
  }
}

interface FoundPolicy {
  readonly kind: 'AccessPolicy' | 'ClusterAccessPolicy'
  /** Undefined if it cannot be read. */
  readonly namespace?: string | undefined
  readonly limitsCalls?: boolean
}

function findNamed(text: string): FoundPolicy[] {
  const stated = text.replace(COMMENT, '$1')
  const limitsCalls = /\begress\b/.test(stated)
  return [...stated.matchAll(NAMED)].map(([, ofCluster]) =>
    ofCluster === undefined ? { kind: 'AccessPolicy' } : { kind: 'ClusterAccessPolicy', limitsCalls },
  )
}

/** `handedOver` is the kind of the items of a typed list. */
function findIn(value: unknown, handedOver: string | undefined): FoundPolicy[] {
  if (!isMap(value)) return []
  const { apiVersion, kind: stated, items, metadata, spec } = value
  const kind = stated ?? handedOver
  if (typeof kind !== 'string') return []
  if (kind.endsWith('List') && Array.isArray(items))
    return items.flatMap((item) => findIn(item, kind === 'List' ? undefined : kind.slice(0, -'List'.length)))
  // Another project may have a kind of the same name.
  const isOurs = typeof apiVersion !== 'string' || apiVersion.split('/')[0] === GROUP
  if (!isOurs) return []
  if (kind === 'ClusterAccessPolicy') return [{ kind, limitsCalls: !isMap(spec) || 'egress' in spec }]
  return kind === 'AccessPolicy' ? [{ kind, namespace: namespaceIn(metadata) }] : []
}

function namespaceIn(metadata: unknown): string | undefined {
  if (!isMap(metadata)) return undefined
  const namespace = metadata['namespace'] ?? 'default'
  return typeof namespace === 'string' && isDnsLabel(namespace) ? namespace : undefined
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const NAME = 'unread-policy-file'

/**
 * Policies that let nobody in. A service with another policy stays as it is: an AccessPolicy that cannot be read would
 * only let in more. `unread` has the files by their path, and `exporting` the namespaces with a ServiceExport.
 */
export function closingPolicies(
  unread: ReadonlyMap<string, UnreadPolicies>,
  exporting: ReadonlySet<string>,
): readonly ParsedObject[] {
  const files = new Map<string, string>()
  let ofCluster: ClusterAccessPolicy | undefined
  for (const [file, found] of [...unread].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const isAnywhere = found.ofCluster !== 'none' || found.namespaces === undefined
    for (const namespace of exporting) {
      const isConcerned = isAnywhere || found.namespaces.has(namespace)
      if (isConcerned && !files.has(namespace)) files.set(namespace, file)
    }
    if (found.ofCluster === 'egress') ofCluster ??= closedCluster(file)
  }
  const closed = [...files]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([namespace, file]) => closedNamespace(namespace, file))
  return [...closed, ...(ofCluster === undefined ? [] : [ofCluster])].map(parsedOf)
}

function closedNamespace(namespace: string, file: string): AccessPolicy {
  const metadata = { name: NAME, namespace, annotations: { [ANNOTATION_UNREAD_FILE]: file } }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy', metadata, spec: { from: [] } }
}

function closedCluster(file: string): ClusterAccessPolicy {
  const metadata = { name: CLUSTER_ACCESS_POLICY_NAME, annotations: { [ANNOTATION_UNREAD_FILE]: file } }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'ClusterAccessPolicy',
    metadata,
    spec: { default: 'deny', egress: [] },
  }
}

function parsedOf(object: KubeObject & { readonly kind: ParsedObject['kind'] }): ParsedObject {
  return { kind: object.kind, key: keyOf(object), object, line: 1 }
}
