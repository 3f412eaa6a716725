/** The rights that a run of verify or benchmark uses in one cluster. Pure. */
import type { ManifestObject } from '../../../install/values/values.ts'
import { SYSTEM_NAMESPACE } from '../../../model/model.ts'
import { kubernetesVersion } from '../../discovery/discovery.ts'
import { type Right, applyRights, removalRights, rightTo } from '../../installation/installation.ts'
import { PROBE_KINDS } from './plan-objects.ts'

export interface RightsInit {
  /** What planObjects() gives for this cluster. */
  readonly objects: readonly ManifestObject[]
  readonly namespace: string
  /** Whether the namespace is the run's own. */
  readonly makesNamespace: boolean
  /** Whether pods and nodes of this cluster call. */
  readonly calls: boolean
  /** Whether a gateway of this cluster is drained. */
  readonly drains: boolean
  readonly knowsPolicies: boolean
  readonly execVerbs: ExecVerbs
}

/** What the server asks for before a command in a pod. */
export type ExecVerbs = readonly ('get' | 'create')[]

/** A namespace takes everything in it along. Exports go before it, so that the other member hears of it early. */
const TAKES_ALL_ALONG: ReadonlySet<string> = new Set(['ServiceExport', 'Namespace'])

/** The objects that the end of a run deletes, if it is not to leave a note about a drained Node. */
export function removedAtEnd(objects: readonly ManifestObject[], makesNamespace: boolean): readonly ManifestObject[] {
  return makesNamespace ? objects.filter(({ kind }) => TAKES_ALL_ALONG.has(kind)) : objects
}

/** Without those that only serve to remove what a killed run has left, which is done as far as it goes. */
export function verifyRights(init: RightsInit): readonly Right[] {
  const { objects, namespace, makesNamespace, calls, drains, knowsPolicies, execVerbs } = init
  const kinds = PROBE_KINDS.filter(({ kind }) => knowsPolicies || kind !== 'AccessPolicy')
  return [
    ...kinds.map(({ apiVersion, kind }) => rightTo('list', { apiVersion, kind, name: '' })),
    ...(makesNamespace ? [] : [rightTo('get', { apiVersion: 'v1', kind: 'Namespace', name: namespace })]),
    ...applyRights(objects),
    // A drain that does not end leaves the Service that names its Node, and all the rest is removed one by one.
    ...removalRights(drains ? objects : removedAtEnd(objects, makesNamespace)),
    ...(calls
      ? [...[namespace, SYSTEM_NAMESPACE].flatMap((at) => execRights(at, execVerbs)), importRight(namespace)]
      : []),
    ...(drains ? DRAIN_RIGHTS : []),
  ]
}

/** What the probe pod of `explain --probe` takes, in a namespace of the user. */
export function probePodRights(
  objects: readonly ManifestObject[],
  namespace: string,
  execVerbs: ExecVerbs,
): readonly Right[] {
  const pod = { apiVersion: 'v1', kind: 'Pod', name: '', namespace }
  return [rightTo('list', pod), ...applyRights(objects), ...removalRights(objects), ...execRights(namespace, execVerbs)]
}

/** The first release whose servers ask for the right to create besides. */
const CREATE_SINCE = { major: 1, minor: 35 }

/**
 * By the answer of `GET /version`. A WebSocket is opened by GET, which is all that a server of unknown version is
 * expected to ask for: a run that it refuses later removes what it made, and a refusal here would be final.
 */
export function execVerbsOf(version: unknown): ExecVerbs {
  const { major, minor } = kubernetesVersion(version)?.value ?? { major: 0, minor: 0 }
  const isNew = major > CREATE_SINCE.major || (major === CREATE_SINCE.major && minor >= CREATE_SINCE.minor)
  return isNew ? ['get', 'create'] : ['get']
}

function execRights(namespace: string, verbs: ExecVerbs): readonly Right[] {
  return verbs.map((verb) => ({ verb, group: '', resource: 'pods', subresource: 'exec', namespace }))
}

function importRight(namespace: string): Right {
  return { verb: 'get', group: 'multicluster.x-k8s.io', resource: 'serviceimports', namespace }
}

const DRAIN_RIGHTS: readonly Right[] = [
  { verb: 'get', group: '', resource: 'nodes' },
  { verb: 'patch', group: '', resource: 'nodes' },
  { verb: 'get', group: 'sealane.io', resource: 'gateways' },
]
