/**
 * Objects that components on a node write about it (OWNED_BY_NODES) belong to its Node object. On Kubernetes the
 * garbage collector removes them with it; on a site without Kubernetes the agent does. Pure.
 */
import type { KubeObject, Node, ObjectMeta, OwnerReference } from './objects.ts'

/**
 * Returns the owner reference to the Node; nothing if there is no Node. It does not set `blockOwnerDeletion`, since
 * nothing has to wait for the removal.
 */
export function ownedByNode(node: Node | undefined): Pick<ObjectMeta, 'ownerReferences'> {
  if (node?.metadata.uid === undefined) return {}
  const { name, uid } = node.metadata
  return { ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name, uid }] }
}

/** Returns the name of the owning Node; undefined if there is none. */
export function owningNode({ metadata }: KubeObject): string | undefined {
  return metadata.ownerReferences?.find(({ kind }) => kind === 'Node')?.name
}

export function sameOwners(a: KubeObject, b: KubeObject): boolean {
  return ownersText(a) === ownersText(b)
}

/**
 * False for a machine whose Node was removed: objects that it writes about itself would never be deleted. A site
 * without Kubernetes may have no Node objects at all. `nodes` are all of the site.
 */
export function isNodeOfSite(name: string, nodes: readonly Node[]): boolean {
  return nodes.length === 0 || nodes.some((node) => node.metadata.name === name)
}

function ownersText({ metadata }: KubeObject): string {
  const text = ({ kind, name, uid }: OwnerReference): string => `${kind} ${name} ${uid}`
  return (metadata.ownerReferences ?? []).map(text).sort().join()
}
