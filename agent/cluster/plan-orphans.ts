/** Objects that nodes wrote about themselves, of nodes that the site does not have any more. Pure. */
import { type KubeObject, type Node, isNodeOfSite, owningNode } from '../../model/model.ts'

/**
 * Only what says itself to which Node it belongs, and nothing while there are no Nodes at all: a site may do without,
 * and a folder that is empty for a moment must remove nothing. By name, since the file of a Node that was taken away
 * and put back is for the same machine.
 */
export function planOrphans<T extends KubeObject>(objects: readonly T[], nodes: readonly Node[]): T[] {
  return objects.filter((object) => {
    const owner = owningNode(object)
    return owner !== undefined && !isNodeOfSite(owner, nodes)
  })
}
