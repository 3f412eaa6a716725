/**
 * What a node reports about the gateways of its routes, from its probes over the overlay. If there is no other gateway
 * node, routes keep a silent one (plan-gateways.ts). The status does not list it, because a node that does not answer
 * carries no traffic. Pure.
 */
import { CONDITION_NODES_ANSWER, type ConditionFinding, MAX_SILENT_NODES, type RouteAgent } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { ProbedNodeState } from '../probes/probes.ts'
import type { RemotePath } from './plan-node-routes.ts'

type Reported = NonNullable<RouteAgent['status']>

export interface NodeHealthInit {
  readonly paths: readonly RemotePath[]
  /** States of the probed nodes, by name. Other nodes, such as this node itself, do not matter. */
  readonly nodeStates: ReadonlyMap<string, ProbedNodeState>
  /** The silent nodes of the previous status. They stay silent until they answer, even for a new process. */
  readonly silentBefore: readonly string[]
}

export interface NodeHealth {
  /** Paths to other clusters, with the gateway nodes that are not silent. */
  readonly clusters: Reported['clusters']
  /** Names of silent nodes, sorted, at most MAX_SILENT_NODES. */
  readonly silentNodes: readonly string[]
  /** Undefined if nothing is probed, or if the first answers are still awaited. */
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
    const message = `no answer over the overlay since this process started from gateway nodes: ${listed(unheard)}`
    return { type: CONDITION_NODES_ANSWER, status: 'Unknown', reason: 'GatewayNodeUnheard', message }
  }
  if (![...nodeStates.values()].some(({ state }) => state === 'answers')) return undefined
  return { type: CONDITION_NODES_ANSWER, status: 'True', reason: 'NodesAnswer', message: '' }
}

function notSo(reason: ReasonCode, message: string): ConditionFinding {
  return { type: CONDITION_NODES_ANSWER, status: 'False', reason, message }
}

const MOST_NAMES = 10

/** Each name once, sorted, and at most MOST_NAMES of them. */
function listed(all: readonly string[]): string {
  const names = [...new Set(all)].sort()
  const rest = names.length - MOST_NAMES
  return `${names.slice(0, MOST_NAMES).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}
