/** Plans the conditions of each Cluster about its contact with the broker and the lanes to it. Pure. */
import type { ObjectEvent } from '../../kubeapi/kubeapi.ts'
import {
  CLUSTERSET_ZONE,
  CONDITION_CLUSTER_DNS,
  CONDITION_CONNECTED,
  CONDITION_GATEWAYS_REDUNDANT,
  CONDITION_IN_CONTACT,
  type Cluster,
  type Condition,
  type ConditionFinding,
  type Gateway,
  REASON_STATUS_STALE,
  findCondition,
  setCondition,
} from '../../model/model.ts'
import { hadGateway } from '../../model/lanes/lanes.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { ClusterDnsAnswer } from './ask-resolver.ts'
import type { DnsTrouble } from './dns-mender.ts'

export interface ClusterStatusWorld {
  /** Milliseconds since 1970. */
  readonly nowMs: number
  /** All members except this one. */
  readonly clusters: readonly Cluster[]
  /**
   * Maps each member without a connection to the broker to the milliseconds it has been without. Undefined while the
   * broker has not reported.
   */
  readonly silent: ReadonlyMap<string, number> | undefined
  /** Gateways of this cluster. Undefined while they have not been read. */
  readonly gateways: readonly Gateway[] | undefined
  /** Members that have published a gateway. Undefined while unknown. */
  readonly withGateway: ReadonlySet<string> | undefined
  /** Names of gateways that have stopped reporting. */
  readonly stale: readonly string[]
}

/** An agent that restarts reconnects sooner than this. */
const SILENT_MS = 30_000

/** The Clusters whose status is to be written. While the broker is unreachable, its last report counts. */
export function planClusterStatus(world: ClusterStatusWorld): readonly Cluster[] {
  const { nowMs, clusters, silent } = world
  return clusters.flatMap((cluster) => {
    const { id } = cluster.spec
    const before = cluster.status?.conditions ?? []
    const findings = [
      silent && validate(silent.get(id), nowMs),
      connected(world, id, findCondition(before, CONDITION_CONNECTED)),
      redundant(world, id),
    ]
    const conditions = findings.reduce((list, finding) => {
      if (finding === undefined) return list
      const known = findCondition(list, finding.type)
      // The start of a silence is written once: it varies a little each time, since the clocks of two machines differ.
      const isSaid = finding.type === CONDITION_IN_CONTACT || known?.reason === finding.reason
      return known?.status === finding.status && isSaid ? list : setCondition(list, finding, nowMs)
    }, before)
    return conditions === before ? [] : [{ ...cluster, status: { ...cluster.status, conditions } }]
  })
}

/** Events for the Clusters that became reachable or unreachable by the statuses from planClusterStatus(). */
export function clusterEvents(before: readonly Cluster[], after: readonly Cluster[]): readonly ObjectEvent[] {
  const known = new Map(before.map((cluster) => [cluster.metadata.name, cluster]))
  return after.flatMap(({ metadata: { name, uid }, status }): ObjectEvent[] => {
    const was = findCondition(known.get(name)?.status?.conditions, CONDITION_CONNECTED)?.status
    const is = findCondition(status?.conditions, CONDITION_CONNECTED)
    const regarding = { kind: 'Cluster' as const, name, uid }
    if (is?.status === 'True' && (was === 'False' || was === undefined)) {
      return [{ regarding, type: 'Normal', reason: 'ClusterReached', note: is.message }]
    }
    if (is?.status === 'False' && was !== 'False' && was !== undefined) {
      return [{ regarding, type: 'Warning', reason: 'ClusterCutOff', note: `${is.reason}: ${is.message}` }]
    }
    return []
  })
}

function validate(silentForMs: number | undefined, nowMs: number): ConditionFinding | undefined {
  if (silentForMs === undefined) {
    return {
      type: CONDITION_IN_CONTACT,
      status: 'True',
      reason: 'Heard',
      message: 'the cluster is connected to the broker',
    }
  }
  if (silentForMs < SILENT_MS) return undefined
  // A silence may be reported as longer than the time since 1970. The date is then 1970.
  const since = new Date(Math.max(0, nowMs - silentForMs)).toISOString().replace(/\.\d+Z$/, 'Z')
  const message = `the cluster has had no connection to the broker since ${since}`
  return { type: CONDITION_IN_CONTACT, status: 'False', reason: 'Silent', message }
}

/** Reports whether several gateways have a link to the cluster. A gateway that has stopped reporting does not count. */
function redundant({ gateways, stale }: ClusterStatusWorld, id: string): ConditionFinding | undefined {
  if (gateways === undefined) return undefined
  const isUp = ({ status }: Gateway): boolean =>
    status?.connections.some(({ cluster, state }) => cluster === id && state === 'up') === true
  const nodes = gateways.filter(isUp).map(({ metadata }) => metadata.name)
  const serving = nodes.filter((name) => !stale.includes(name)).sort()
  const type = CONDITION_GATEWAYS_REDUNDANT
  if (serving.length > 1) {
    const message = `${serving.length} gateways have a link to the cluster that is up: ${serving.join(', ')}`
    return { type, status: 'True', reason: 'SeveralGateways', message }
  }
  const [one] = serving
  const message =
    one === undefined
      ? 'no gateway has a link to the cluster that is up'
      : `only gateway ${one} has a link to the cluster that is up: if its node fails, the cluster is unreachable`
  return { type, status: 'False', reason: 'OneGatewayOnly', message }
}

/** Reports whether the cluster is reachable. One lane that is up is enough while its gateway reports. */
function connected(
  { gateways, stale, withGateway }: ClusterStatusWorld,
  id: string,
  before: Condition | undefined,
): ConditionFinding | undefined {
  if (gateways === undefined) return undefined
  const all = gateways.flatMap(({ metadata, status }) =>
    (status?.connections ?? [])
      .filter(({ cluster }) => cluster === id)
      .map(({ state }) => ({ node: metadata.name, state, isStale: stale.includes(metadata.name) })),
  )
  const finding = (status: 'True' | 'False' | 'Unknown', reason: ReasonCode, message: string): ConditionFinding => {
    return { type: CONDITION_CONNECTED, status, reason, message }
  }
  const fresh = all.filter(({ isStale }) => !isStale)
  if (fresh.some(({ state }) => state === 'up')) return finding('True', 'LaneUp', 'a lane to the cluster is up')
  const silent = all.find(({ isStale, state }) => isStale && state === 'up')
  if (silent !== undefined) {
    return finding('Unknown', REASON_STATUS_STALE, `the gateway on node ${silent.node} does not report`)
  }
  if (fresh.some(({ state }) => state === 'down')) {
    return finding('False', 'LaneProbeTimeout', 'no lane to the cluster answers probes')
  }
  if (fresh.length > 0) return finding('False', 'LaneConnecting', 'no lane to the cluster is connected yet')
  if (gateways.length === 0) return finding('False', 'NoGateway', 'no node of this cluster runs a gateway')
  // A cluster that had a gateway before has lost it.
  if (!hadGateway(before)) {
    // NoLane would say that the cluster had a gateway, and later rounds would believe it.
    if (withGateway === undefined) return undefined
    if (!withGateway.has(id)) return finding('False', 'FarGatewayAwaited', 'the cluster has published no gateway yet')
  }
  return finding('False', 'NoLane', 'no gateway of this cluster has a lane to that cluster')
}

// The condition of this cluster's own Cluster about its DNS. Pure.

/**
 * The Cluster with its new status. Undefined if its status needs no change. Settings that are lost count also while the
 * DNS servers that this agent asks still answer: those on other nodes may not.
 */
export function planDnsStatus(
  own: Cluster,
  answer: ClusterDnsAnswer,
  nowMs: number,
  trouble?: DnsTrouble,
): Cluster | undefined {
  const before = own.status?.conditions ?? []
  const conditions = setCondition(before, dnsFinding(answer, trouble), nowMs)
  return conditions === before ? undefined : { ...own, status: { ...own.status, conditions } }
}

function dnsFinding(answer: ClusterDnsAnswer, trouble: DnsTrouble | undefined): ConditionFinding {
  const type = CONDITION_CLUSTER_DNS
  if (trouble !== undefined && (trouble.isLost || !answer.answers)) {
    return { type, status: 'False', reason: trouble.reason, message: trouble.message }
  }
  if (answer.answers) {
    const more = trouble === undefined ? '' : `; but ${trouble.message} (${trouble.reason})`
    const message = `the cluster's DNS forwards ${CLUSTERSET_ZONE} to Sealane${more}`
    return { type, status: 'True', reason: 'Answers', message }
  }
  const message = `the cluster's DNS does not forward ${CLUSTERSET_ZONE} to Sealane; asked for its SOA, it answered: ${answer.said}`
  return { type, status: 'False', reason: 'DoesNotAnswer', message }
}
