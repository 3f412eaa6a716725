/** Reads what the route agents of a cluster say about calls, by a command in the pod of each. */
import type { ClusterAdmin } from '../../context/context.ts'
import { readFromRouteAgents } from '../probes/pod-probes.ts'
import { type NodeFlows, readFlows } from './read-flows.ts'

const COMMAND = ['sealane', 'top', 'services', '--page']

/** Nodes that give no answer are remarks. Rejects if pods cannot be listed, and with the signal's reason. */
export async function flowsOfNodes(
  admin: Pick<ClusterAdmin, 'title' | 'list' | 'exec'>,
  remark: (line: string) => void,
  signal: AbortSignal,
): Promise<readonly NodeFlows[]> {
  const read = await readFromRouteAgents(admin, { command: COMMAND, read: readFlows, remark }, signal)
  return read.map(({ node, value }) => ({ ...value, node }))
}
