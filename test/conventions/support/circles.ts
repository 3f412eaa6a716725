/** Finds the circles of a directed graph, which are sets of nodes that reach each other. */

/** Returns each circle as one sorted text (Tarjan's strongly connected components). */
export function circlesIn(graph: ReadonlyMap<string, readonly string[]>): string[] {
  const order = new Map<string, number>()
  const open: string[] = []
  const circles: string[] = []
  const visit = (node: string): number => {
    let low = order.size
    order.set(node, low)
    open.push(node)
    for (const next of graph.get(node) ?? []) {
      if (!graph.has(next)) continue
      if (!order.has(next)) low = Math.min(low, visit(next))
      else if (open.includes(next)) low = Math.min(low, order.get(next) ?? low)
    }
    if (low !== order.get(node)) return low
    const members = open.splice(open.indexOf(node))
    if (members.length > 1 || graph.get(node)?.includes(node) === true) circles.push(members.sort().join(', '))
    return low
  }
  for (const node of graph.keys()) if (!order.has(node)) visit(node)
  return circles.sort()
}
