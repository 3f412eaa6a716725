/**
 * What a node says of the ways that its routes have, by its probes over the overlay. Routes keep a gateway node that is
 * silent where there is no other (plan-gateways.ts); a status must not: what does not answer carries nothing. Pure.
 */
import { CONDITION_NODES_ANSWER, type ConditionFinding, MAX_SILENT_NODES, type RouteAgent } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { ProbedNodeState } from '../probes/probes.ts'
import type { RemotePath } from './plan-node-routes.ts'

type Reported = NonNullable<RouteAgent['status']>

export interface NodeHealthInit {
  readonly paths: readonly RemotePath[]
  /** Of nodes that are probed, by name; what is not in it (this node itself) is no question. */
  readonly nodeStates: ReadonlyMap<string, ProbedNodeState>
  /** What the status said before: a node that was silent is so until it is heard, also for a new process. */
  readonly silentBefore: readonly string[]
}

export interface NodeHealth {
  /** Ways to other clusters, with the gateway nodes that are not silent. */
  readonly clusters: Reported['clusters']
  /** Sorted, bounded by MAX_SILENT_NODES. */
  readonly silentNodes: readonly string[]
  /** Undefined: nothing is probed, or the first answers are still waited for. */
  readonly finding: ConditionFinding | undefined
}

export function planNodeHealth({ paths, nodeStates, silentBefore }: NodeHealthInit): NodeHealth {
  const before = new Set(silentBefore)
  const silent = [...nodeStates].flatMap(([node, { state }]) =>
    state === 'silent' || (state !== 'answers' && before.has(node)) ? [node] : [],
  )
  const isSilent = new Set(silent)
  const clusters = paths.map(({ cluster, gateways, mtu }) => ({
    cluster,
    gateways: gateways.filter((gateway) => !isSilent.has(gateway)),
    mtu,
  }))
  return {
    clusters,
    silentNodes: silent.sort().slice(0, MAX_SILENT_NODES),
    finding: findingOf(paths, nodeStates, isSilent),
  }
}

function findingOf(
  paths: readonly RemotePath[],
  nodeStates: NodeHealthInit['nodeStates'],
  silent: ReadonlySet<string>,
): ConditionFinding | undefined {
  const named = (wanted: (node: string, isGateway: boolean) => boolean): string[] =>
    [...nodeStates].filter(([node, { isGateway }]) => wanted(node, isGateway)).map(([node]) => node)
  const lost = paths.filter(({ gateways }) => gateways.length > 0 && gateways.every((one) => silent.has(one)))
  if (lost.length > 0) {
    const by = listed(lost.flatMap(({ gateways }) => gateways))
    const far = listed(lost.map(({ cluster }) => cluster))
    return notSo('NodesCutOff', `no gateway node that leads to ${far} answers over the overlay: ${by}`)
  }
  const gateways = named((node, isGateway) => isGateway && silent.has(node))
  if (gateways.length > 0) {
    return notSo('GatewayNodeSilent', `no answer over the overlay from gateway nodes: ${listed(gateways)}`)
  }
  const workers = named((node, isGateway) => !isGateway && silent.has(node))
  if (workers.length > 0) return notSo('WorkerNodeSilent', `no answer over the overlay from: ${listed(workers)}`)
  const unheard = named((node, isGateway) => isGateway && nodeStates.get(node)?.state === 'unheard')
  if (unheard.length > 0) {
    const message = `never an answer over the overlay since this process began from gateway nodes: ${listed(unheard)}`
    return { type: CONDITION_NODES_ANSWER, status: 'Unknown', reason: 'GatewayNodeUnheard', message }
  }
  if (![...nodeStates.values()].some(({ state }) => state === 'answers')) return undefined
  return { type: CONDITION_NODES_ANSWER, status: 'True', reason: 'NodesAnswer', message: '' }
}

function notSo(reason: ReasonCode, message: string): ConditionFinding {
  return { type: CONDITION_NODES_ANSWER, status: 'False', reason, message }
}

const MOST_NAMES = 10

/** Each once, in order, and not more than MOST_NAMES of them. */
function listed(all: readonly string[]): string {
  const names = [...new Set(all)].sort()
  const rest = names.length - MOST_NAMES
  return `${names.slice(0, MOST_NAMES).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}
