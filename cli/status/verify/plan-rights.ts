/** The rights that a run of verify or benchmark uses in one cluster. Pure. */
import type { ManifestObject } from '../../../install/values/values.ts'
import { SYSTEM_NAMESPACE } from '../../../model/model.ts'
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
}

/** A namespace takes everything in it along. Exports go before it, so that the other member hears of it early. */
const TAKES_ALL_ALONG: ReadonlySet<string> = new Set(['ServiceExport', 'Namespace'])

/** The objects that the end of a run deletes, if it is not to leave a note about a drained Node. */
export function removedAtEnd(objects: readonly ManifestObject[], makesNamespace: boolean): readonly ManifestObject[] {
  return makesNamespace ? objects.filter(({ kind }) => TAKES_ALL_ALONG.has(kind)) : objects
}

/** Without those that only serve to remove what a killed run has left, which is done as far as it goes. */
export function verifyRights(init: RightsInit): readonly Right[] {
  const { objects, namespace, makesNamespace, calls, drains, knowsPolicies } = init
  const kinds = PROBE_KINDS.filter(({ kind }) => knowsPolicies || kind !== 'AccessPolicy')
  return [
    ...kinds.map(({ apiVersion, kind }) => rightTo('list', { apiVersion, kind, name: '' })),
    ...(makesNamespace ? [] : [rightTo('get', { apiVersion: 'v1', kind: 'Namespace', name: namespace })]),
    ...applyRights(objects),
    // A drain that does not end leaves the Service that names its Node, and all the rest is removed one by one.
    ...removalRights(drains ? objects : removedAtEnd(objects, makesNamespace)),
    ...(calls ? [...execRights(namespace), ...execRights(SYSTEM_NAMESPACE), importRight(namespace)] : []),
    ...(drains ? DRAIN_RIGHTS : []),
  ]
}

/** What the probe pod of `explain --probe` takes, in a namespace of the user. */
export function probePodRights(objects: readonly ManifestObject[], namespace: string): readonly Right[] {
  const pod = { apiVersion: 'v1', kind: 'Pod', name: '', namespace }
  return [rightTo('list', pod), ...applyRights(objects), ...removalRights(objects), ...execRights(namespace)]
}

/** A WebSocket is opened by GET. From Kubernetes 1.35 on, servers also ask for the right to create. */
function execRights(namespace: string): readonly Right[] {
  return ['get', 'create'].map((verb) => ({ verb, group: '', resource: 'pods', subresource: 'exec', namespace }))
}

function importRight(namespace: string): Right {
  return { verb: 'get', group: 'multicluster.x-k8s.io', resource: 'serviceimports', namespace }
}

const DRAIN_RIGHTS: readonly Right[] = [
  { verb: 'get', group: '', resource: 'nodes' },
  { verb: 'patch', group: '', resource: 'nodes' },
  { verb: 'get', group: 'sealane.io', resource: 'gateways' },
]
