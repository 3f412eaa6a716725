/** Finds the objects that nodes wrote about themselves and whose nodes the site no longer has. Pure. */
import { type KubeObject, type Node, isNodeOfSite, owningNode } from '../../model/model.ts'

/**
 * Considers only objects that name the Node they belong to, and none at all while there are no Nodes: a site may have
 * no Nodes, and a folder that is empty for a moment must remove nothing. Compares names, since the file of a Node that
 * was removed and restored is for the same machine.
 */
export function planOrphans<T extends KubeObject>(objects: readonly T[], nodes: readonly Node[]): T[] {
  return objects.filter((object) => {
    const owner = owningNode(object)
    return owner !== undefined && !isNodeOfSite(owner, nodes)
  })
}
