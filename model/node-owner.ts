/**
 * Objects that the parts on a node write about it (OWNED_BY_NODES) belong to the node's Node object. On Kubernetes the
 * garbage collector removes them with it; on a plain site the agent does. Pure.
 */
import type { KubeObject, Node, ObjectMeta, OwnerReference } from './objects.ts'

/**
 * Metadata that says so; nothing while the Node is not there. No `blockOwnerDeletion`: nothing waits for them to go.
 */
export function ownedByNode(node: Node | undefined): Pick<ObjectMeta, 'ownerReferences'> {
  if (node?.metadata.uid === undefined) return {}
  const { name, uid } = node.metadata
  return { ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name, uid }] }
}

/** The name of the Node that it belongs to; undefined when it belongs to none. */
export function owningNode({ metadata }: KubeObject): string | undefined {
  return metadata.ownerReferences?.find(({ kind }) => kind === 'Node')?.name
}

export function sameOwners(a: KubeObject, b: KubeObject): boolean {
  return ownersText(a) === ownersText(b)
}

/**
 * False for a machine whose Node was removed: what it writes about itself would stay for ever. A plain site may do
 * without any Node objects. `nodes` are all of the site, read once.
 */
export function isNodeOfSite(name: string, nodes: readonly Node[]): boolean {
  return nodes.length === 0 || nodes.some((node) => node.metadata.name === name)
}

function ownersText({ metadata }: KubeObject): string {
  const text = ({ kind, name, uid }: OwnerReference): string => `${kind} ${name} ${uid}`
  return (metadata.ownerReferences ?? []).map(text).sort().join()
}
