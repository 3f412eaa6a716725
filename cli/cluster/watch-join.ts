/** Reads the progress of a join from the cluster, as what is still missing. */
import {
  APP_MANAGED_BY_SEALANE,
  CONDITION_IN_CONTACT,
  type Cluster,
  type ConnectionCause,
  type ConnectionState,
  type Gateway,
  LABEL_APP_MANAGED_BY,
  MEMBERSHIP_NAME,
  findCondition,
  knownMembers,
  oneLine,
} from '../../model/model.ts'
import { LABEL_GATEWAY, isTakenAsSilent, laneOfLabel } from '../../model/lanes/lanes.ts'
import { reasonRow } from '../../model/reasons/reasons.ts'
import { type SecretAccess, endOfIdentity, joinProblem, secretIdentity } from '../../protocol/membership/membership.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { type Missing, type Progress, nodeText, partTrouble, unreadyNodes } from '../installation/installation.ts'
import type { JoinPlan } from './plan-join.ts'

// Decides which other clusters are reachable, from the probe results of the gateways. Pure.

interface LaneState {
  readonly cluster: string
  /** The state of the best of all lanes to the cluster: one lane that is up is enough. */
  readonly state: ConnectionState
  readonly message: string
  readonly cause?: ConnectionCause
}

const RANK: Readonly<Record<ConnectionState, number>> = { up: 0, connecting: 1, down: 2 }

export function joinedOthers(clusters: readonly Cluster[], own: string | undefined): readonly string[] {
  return clusters
    .map(({ spec }) => spec.id)
    .filter((id) => id !== own)
    .sort()
}

/**
 * The members without a connection to the broker, with the message that the agent writes to their status
 * (agent/cluster/plan-cluster-status.ts), by id.
 */
function silentClusters(clusters: readonly Cluster[]): ReadonlyMap<string, string> {
  return new Map(
    clusters.flatMap(({ spec, status }): [string, string][] => {
      const contact = findCondition(status?.conditions, CONDITION_IN_CONTACT)
      return contact?.status === 'False' ? [[spec.id, contact.message]] : []
    }),
  )
}

/** A cluster that no gateway reports yet is `connecting`. */
export function laneStates(clusters: readonly string[], gateways: readonly Gateway[]): readonly LaneState[] {
  const connections = gateways.flatMap((gateway) =>
    (gateway.status?.connections ?? []).map((one): LaneState =>
      isTakenAsSilent(gateway) ? unheard(one.cluster, gateway.metadata.name) : one,
    ),
  )
  return clusters.map((cluster) => {
    const own = connections.filter((connection) => connection.cluster === cluster)
    const best = [...own].sort((a, b) => RANK[a.state] - RANK[b.state])[0]
    if (best === undefined) return { cluster, state: 'connecting', message: 'not reported yet' }
    const { state, message, cause } = best
    return { cluster, state, message, ...(cause === undefined ? {} : { cause }) }
  })
}

/** The state of a gateway that no longer reports: its last report says nothing about its lanes now. */
function unheard(cluster: string, node: string): LaneState {
  return { cluster, state: 'connecting', message: `the gateway on node ${node} does not report` }
}

const OURS = 'sealane.io/v1alpha1'

export interface JoinPlace {
  readonly secret: SecretAccess
  /** The text of the site file that the agent has, or will have. */
  readonly settings: string
  readonly namespace: string
  /** The current time in milliseconds since 1970. An identity that has expired by then does not count. */
  readonly nowMs: number
  /** How long an operator of the broker may take to accept this cluster. Undefined for the usual limit. */
  readonly approvalMs?: number | undefined
}

export interface JoinMissing extends Missing {
  /** What the join would change for other members. The user has to agree to it. */
  readonly asks?: string
}

/** Throws UserError if the broker refuses the token, or if the token is invalid. */
export async function joinProgress(
  admin: Pick<ClusterAdmin, 'list'>,
  { secret, settings, namespace, nowMs, approvalMs }: JoinPlace,
  signal: AbortSignal,
): Promise<JoinMissing | undefined> {
  const identity = await secretIdentity(secret).read()
  if (identity !== undefined && endOfIdentity(identity) > nowMs) return undefined
  const problem = joinProblem(await secret.read(), settings)
  if (problem?.final === true) {
    throw new UserError(problem.text, {
      hint: 'fix that, or create a new token (sealane token create), and run this command again',
      ...(problem.reason === undefined ? {} : { reason: problem.reason }),
    })
  }
  // Shown at once: the user may have to read it to the operator of the broker.
  if (problem?.reason === 'JoinAwaitsApproval') return { what: oneLine(problem.text), mayTakeMs: approvalMs }
  // The user may take a while to answer. After that the agent joins at once.
  if (problem?.reason === 'JoinAwaitsAgreement')
    return { what: 'agent', asks: oneLine(problem.text), mayTakeMs: Infinity }
  if (problem !== undefined) return { what: 'agent', why: problem.text }
  return { what: 'agent', why: undefined, ...(await partTrouble(admin, 'agent', namespace, signal)) }
}

export interface LanesProgress extends Progress {
  /** The ids of the other clusters with a lane that is up. */
  readonly reached: readonly string[]
  /** There is no other member. */
  readonly alone: boolean
}

/**
 * Members without a connection to the broker are left out, and so are gateways on nodes that are not ready, unless all
 * of the gateways would be left out.
 */
export async function lanesProgress(
  admin: Pick<ClusterAdmin, 'list' | 'get'>,
  { gateways, activeGateways }: Pick<JoinPlan, 'gateways' | 'activeGateways'>,
  signal: AbortSignal,
): Promise<LanesProgress> {
  const clusters = (await admin.list(OURS, 'Cluster', {}, signal)) as unknown as Cluster[]
  const membership = await admin.get({ apiVersion: OURS, kind: 'Membership', name: MEMBERSHIP_NAME }, signal)
  const own = (membership?.['spec'] as { clusterId?: string } | undefined)?.clusterId
  const unready = await unreadyNodes(admin, signal)
  const all = (await admin.list(OURS, 'Gateway', {}, signal)) as unknown as Gateway[]
  // The last report of a node that is down says nothing about its lanes now.
  const objects = all.filter(({ metadata }) => !unready.has(metadata.name))
  const ownCluster = clusters.find((one) => one.spec.id === own)
  const known = ownCluster === undefined || !isMirrored(ownCluster) ? undefined : knownMembers(ownCluster)
  if (known === undefined) {
    const missing = { what: 'the members of the clusterset from the broker' }
    return { reached: [], alone: false, missing, leftOut: [] }
  }
  const others = joinedOthers(clusters, own)
  const unused = [...known].filter(([id, reason]) => id !== own && reason !== undefined)
  const late = [...known.keys()].filter((id) => id !== own && !others.includes(id) && known.get(id) === undefined)
  // This counts the broker's own list, because this cluster may have mirrored only a part of the other members yet.
  const alone = others.length === 0 && known.size <= 1
  const notUsed = unused.map(([id, reason]) => `cluster ${id} is not used here: ${reason ?? ''}`)
  if (late.length > 0) return { reached: [], alone, missing: { what: `from ${late.join(', ')}` }, leftOut: notUsed }
  const served = await servedLanes(admin, { gateways: objects, activeGateways }, signal)
  const unserved = gateways.filter(({ node }) => !served.has(node))
  const awaited = unserved.filter(({ node }) => unserved.length === gateways.length || !unready.has(node))
  const nodes = unserved.filter((one) => !awaited.includes(one)).map(({ node }) => nodeText(node))
  if (awaited.length > 0) {
    const what = `from the gateway on ${awaited.map(({ node }) => node).join(', ')}`
    return { reached: [], alone, missing: { what }, leftOut: [...notUsed, ...nodes] }
  }
  const states = laneStates(others, objects)
  const reached = states.filter(({ state }) => state === 'up').map(({ cluster }) => cluster)
  const down = states.filter(({ state }) => state !== 'up')
  const silence = silentClusters(clusters)
  const leftOut = [
    ...notUsed,
    ...nodes,
    ...down.flatMap(({ cluster }) => silentText(cluster, silence.get(cluster)) ?? []),
  ]
  return { reached, alone, missing: lanesMissing(down.filter(({ cluster }) => !silence.has(cluster))), leftOut }
}

/**
 * The Nodes with an active gateway, and standby Nodes whose lane is served by another Node. A standby Node without a
 * lane number counts when as many gateways are active as there are to be.
 */
async function servedLanes(
  admin: Pick<ClusterAdmin, 'list'>,
  { gateways, activeGateways }: { readonly gateways: readonly Gateway[]; readonly activeGateways: number },
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const serving = new Set(gateways.map(({ metadata }) => metadata.name))
  const served = new Set(gateways.flatMap(({ status }) => status?.lanes.map(({ lane }) => lane) ?? []))
  const nodes = await admin.list('v1', 'Node', {}, signal)
  const standby = nodes.filter(({ metadata }) => {
    const lane = laneOfLabel(metadata.labels?.[LABEL_GATEWAY] ?? 'none')
    return lane === 'any' ? served.size >= activeGateways : lane !== undefined && served.has(lane)
  })
  return new Set([...serving, ...standby.map(({ metadata }) => metadata.name)])
}

/**
 * The join itself creates the cluster's own object. The agent labels the object when it first mirrors the whole
 * clusterset.
 */
function isMirrored({ metadata }: Cluster): boolean {
  return metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
}

function lanesMissing(down: readonly LaneState[]): Missing | undefined {
  const [first] = down
  if (first === undefined) return undefined
  const why = down.map(({ cluster, state, message }) => `${cluster} ${state}${message === '' ? '' : `: ${message}`}`)
  // As long as one of the clusters may still become reachable, the command waits for it.
  const isHopeless = down.every(({ cause }) => cause === 'NeitherCallable')
  const mend = isHopeless ? { mend: reasonRow('NeitherEndCallable').todo } : {}
  return { what: `to ${down.map(({ cluster }) => cluster).join(', ')}`, why: why.join('; '), ...mend }
}

function silentText(cluster: string, said: string | undefined): string | undefined {
  return said === undefined ? undefined : `cluster ${cluster} is not in contact: ${said}`
}
