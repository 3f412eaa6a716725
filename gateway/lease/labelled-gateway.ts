/**
 * The gateway of a node in a real cluster. The label on the Node names the lane that it may serve, or leaves the number
 * open, and may be added, changed and removed while the process runs. The holder of a lane's Lease serves it; the other
 * nodes are standbys. A stop leaves the data path in place, unless the API says at that moment that this node is no
 * longer a gateway: after the label is removed, the node is as it was before.
 */
import { type LeaseStore, watchLeaving } from '../../kubeapi/kubeapi.ts'
import { holderOf } from '../../kubeapi/lease/lease.ts'
import {
  type GatewayLabel,
  type GatewayLane,
  LABEL_GATEWAY,
  gatewayLabel,
  gatewayProblem,
  laneLeaseName,
} from '../../model/lanes/lanes.ts'
import type { Node } from '../../model/model.ts'
import { unlessAborted, untilAborted, withDeadline } from '../../reconcile/reconcile.ts'
import { probeTcp, messageOf } from '../../runtime/runtime.ts'
import { readMembership, whenCachesSynced } from '../lanes/lanes.ts'
import { leaveUntilDone, runGateway } from '../main.ts'
import { type GatewayConfig, type GatewayDeps, gatewayMetrics } from '../world/world.ts'
import { FailedLane } from './failed-lane.ts'
import { handLaneOver } from './hand-over.ts'
import { LaneLease } from './lane-lease.ts'
import { LaneSearch } from './lane-search.ts'
import type { LeaseWatch } from './lease-watch.ts'

// The functions below watch which lane the label of this node's Node names.

/** A Node that was created again has no label until an operator sets it. Its lane and its key are kept this long. */
export const LABEL_GRACE_MS = 5000

/** `unusable`: the Node has the label but cannot be a gateway. */
type NodeSays = GatewayLabel | 'unusable' | undefined

interface OtherLane {
  /** Aborts when the label names another lane, or when the Node has had no label for some seconds. */
  readonly signal: AbortSignal
  /** What the last valid state of the Node says. */
  readonly lane: () => NodeSays
  /** Why the current state of the Node is not valid. Undefined if it is valid. */
  readonly problem: () => string | undefined
  readonly close: () => void
}

/** `before` is what this process serves now. */
function watchLane(
  { api, logger, clock }: Pick<GatewayDeps, 'api' | 'logger' | 'clock'>,
  { node, overlayPort }: Pick<LabelledGatewayInit, 'node' | 'overlayPort'>,
  before: NodeSays,
): OtherLane {
  const changed = new AbortController()
  let lane = before
  let problem: string | undefined
  let cancelGrace: (() => void) | undefined
  const keep = (): void => {
    cancelGrace?.()
    cancelGrace = undefined
  }
  /** Undefined if the Node says nothing valid. */
  const read = (): { readonly lane: GatewayLabel | undefined } | undefined => {
    const object = api.cache('Node').get(node)
    // A missing Node may return: kubelets register it again.
    if (object === undefined) return undefined
    const error = gatewayProblem(object, overlayPort)
    const last = problem
    problem = error?.message
    if (error === undefined) return { lane: gatewayLabel(object, overlayPort) }
    // A mistake in a label does not take a lane down.
    if (last !== problem) {
      const { reason, message } = error
      const stays = before === 'unusable' || before === undefined ? 'it takes no lane' : 'it keeps its current role'
      logger.error(`the gateway settings of this Node are invalid; ${stays}`, { reason, why: message })
      const note = `${message}; until then ${stays}`
      api.report({ regarding: { kind: 'Node', name: node }, type: 'Warning', reason, note })
    }
    return undefined
  }
  const look = (): void => {
    const said = read()
    if (said !== undefined) lane = said.lane
    if (said === undefined || isSame(said.lane, before)) keep()
    else if (said.lane !== undefined) changed.abort()
    else cancelGrace ??= clock.setTimer(LABEL_GRACE_MS, () => changed.abort())
  }
  const stop = api.cache('Node').onChange((change) => {
    if (change?.object.metadata.name === node) look()
  })
  look()
  const close = (): void => {
    stop()
    keep()
  }
  return { signal: changed.signal, lane: () => lane, problem: () => problem, close }
}

function isSame(a: NodeSays, b: NodeSays): boolean {
  if (a === 'unusable' || b === 'unusable') return a === b
  const fields = ['lane', 'publicAddress', 'publicPort', 'listenPort', 'relay', 'portMapping'] as const
  return fields.every((field) => a?.[field] === b?.[field])
}

export interface LabelledGatewayInit {
  readonly node: string
  readonly configOf: (lanes: readonly GatewayLane[]) => GatewayConfig
  /** Reads the Node from the API, past all caches. Undefined if there is no such Node. Rejects without an answer. */
  readonly askNode: (signal: AbortSignal) => Promise<Node | undefined>
  readonly leases: LeaseStore
  /** How many lane numbers the nodes share whose label leaves the number open. */
  readonly activeGateways: number
  /** The UDP port of the overlay. Default: VXLAN_PORT. */
  readonly overlayPort?: number
  /** Duration of the Lease of a lane. Default: LANE_LEASE_MS. */
  readonly leaseMs?: number
}

/**
 * How long the last API check and the cleanup may take. Kubernetes kills a pod some time after it asks it to stop
 * (install/plan-member.ts). In that time a lane may also be handed over (hand-over.ts), and the connection to the API is
 * closed.
 */
export const ASK_MS = 3000
export const CLEAN_MS = 5000

/** The given settings, and the state that one process keeps. */
interface ProcessInit extends LabelledGatewayInit {
  readonly failedLane: FailedLane
}

/**
 * Runs until the signal, or until the cluster has left. `first` is what the Node says at the start. Throws what
 * runGateway() throws.
 */
export async function runLabelledGateway(
  deps: GatewayDeps,
  given: LabelledGatewayInit,
  first: NodeSays,
  signal: AbortSignal,
): Promise<void> {
  const init = { ...given, failedLane: new FailedLane(deps.clock) }
  let label = first
  let isGateway: boolean | undefined
  while (!signal.aborted) {
    const other = watchLane(deps, init, label)
    const until = AbortSignal.any([signal, other.signal])
    try {
      if (label === undefined) await standAside(deps, init, until)
      else if (label === 'unusable') await waitForLabel(deps, other, until)
      else {
        const end = await serveLabel(deps, init, { label, other, signal })
        // The cluster has left, and nothing of the gateway remains on the node.
        if (end.is === 'left') return
        isGateway = end.isGateway
      }
    } finally {
      other.close()
    }
    if (!until.aborted) return
    label = other.lane()
    if (other.signal.aborted) deps.logger.info('the gateway label of this node has changed', { lane: laneText(label) })
  }
  await lastLook(deps, init, isGateway)
}

interface LabelInit {
  readonly label: GatewayLabel
  readonly other: OtherLane
  readonly signal: AbortSignal
}

interface TurnInit extends Omit<LabelInit, 'label'> {
  readonly lane: GatewayLane
  /** Set if this node found the lane itself. It then looks for another lane when another node has this one. */
  readonly chosen?: LeaseWatch
}

/** `stopped`: `isGateway` is the last answer of the API, if it was asked. `taken`: another node has the lane now. */
type TurnEnd =
  { readonly is: 'left' } | { readonly is: 'stopped'; readonly isGateway?: boolean } | { readonly is: 'taken' }

/** Serves what the label allows: the lane that it names, or one lane after another that this node finds. */
async function serveLabel(
  deps: GatewayDeps,
  init: ProcessInit,
  { label, other, signal }: LabelInit,
): Promise<Exclude<TurnEnd, { readonly is: 'taken' }>> {
  const until = AbortSignal.any([signal, other.signal])
  const { lane: stated, ...rest } = label
  while (!until.aborted) {
    const chosen = stated === 'any' ? await findLane(deps, init, until) : undefined
    if (chosen === 'left') return { is: 'left' }
    const lane = stated === 'any' ? chosen?.lane : stated
    if (lane === undefined) break
    const turn = { lane: { ...rest, lane }, other, signal, ...(chosen === undefined ? {} : { chosen }) }
    const end = await serveInTurn(deps, init, turn)
    if (end.is !== 'taken') return end
  }
  return { is: 'stopped' }
}

/** Waits as a standby until it finds a lane. Gives undefined when stopped, `left` when the cluster has left. */
async function findLane(
  deps: GatewayDeps,
  init: ProcessInit,
  until: AbortSignal,
): Promise<LeaseWatch | 'left' | undefined> {
  const parts = { ...deps, leases: init.leases, probeTcp: deps.probeTcp ?? probeTcp }
  const search = new LaneSearch(parts, { node: init.node, numbers: init.activeGateways, failedLane: init.failedLane })
  const over = new AbortController()
  const searching = search.run(AbortSignal.any([until, over.signal]))
  const unknown = (): string | undefined => (search.state.is === 'unknown' ? search.state.why : undefined)
  try {
    while (!until.aborted) {
      if (search.state.is === 'found') return search.state.watch
      const turn = search.whileTurn()
      const end = AbortSignal.any([until, turn.signal])
      try {
        if (turn.role === 'stand by') {
          if ((await standBy(deps, init, 'any lane', end)) === 'left') return 'left'
        } else await waitForWord(deps, 'the lanes', unknown, end)
      } finally {
        turn.close()
      }
    }
    return undefined
  } finally {
    over.abort()
    await searching
  }
}

/** Serves the lane while this node has it and is a standby otherwise. When it stops, it hands the lane over first. */
async function serveInTurn(
  deps: GatewayDeps,
  init: ProcessInit,
  { lane, other, signal, chosen }: TurnInit,
): Promise<TurnEnd> {
  const lease = new LaneLease(
    { ...deps, leases: init.leases, probeTcp: deps.probeTcp ?? probeTcp },
    {
      node: init.node,
      lane: lane.lane,
      numbers: init.activeGateways,
      failedLane: init.failedLane,
      ...(init.leaseMs === undefined ? {} : { leaseMs: init.leaseMs }),
      ...(chosen === undefined ? {} : { chosen }),
    },
  )
  const [over, stop] = [new AbortController(), new AbortController()]
  const holding = lease.run(over.signal)
  let isGateway: boolean | undefined
  const ending = untilAborted(AbortSignal.any([signal, other.signal, over.signal])).then(async () => {
    if (over.signal.aborted) return
    if (signal.aborted) isGateway = await asksForGateway(deps, init)
    const hasMoved = other.signal.aborted && !leaves(other.lane(), lane.lane)
    // A new public address or port restarts the same gateway.
    if (isGateway === false) await handLaneOver(deps, lease, 'gateway')
    else if (hasMoved) await handLaneOver(deps, lease, (await canTake(deps, init, other.lane())) ? 'lane' : 'gateway')
    else if (signal.aborted) await handLaneOver(deps, lease, 'process')
    stop.abort()
  })
  try {
    const turns = { lane, lease, stop: stop.signal, onlyWhile: chosen !== undefined }
    const end = await takeTurns({ ...deps, handover: lease }, init, turns)
    if (end === 'left' || (end === 'taken' && !signal.aborted && !other.signal.aborted)) return { is: end }
    await ending
    return { is: 'stopped', ...(isGateway === undefined ? {} : { isGateway }) }
  } finally {
    over.abort()
    await Promise.all([holding, ending])
  }
}

function laneText(label: NodeSays): number | string {
  return label === undefined || label === 'unusable' ? 'none' : label.lane
}

/**
 * True if no other node holds the lane of the new label: this node then carries traffic again as soon as it has
 * released the old one.
 */
async function canTake({ clock }: GatewayDeps, { leases, node }: ProcessInit, label: NodeSays): Promise<boolean> {
  if (label === undefined || label === 'unusable' || label.lane === 'any') return false
  const name = laneLeaseName(label.lane)
  const read = withDeadline(clock, ASK_MS, async (signal) => {
    const holder = holderOf(await leases.read(name, signal))
    return holder === '' || holder === node
  })
  return read.catch(() => false)
}

/** True if the label allows the node to keep the lane that it serves. */
function leaves(label: NodeSays, lane: number): boolean {
  if (label === 'unusable') return true
  return label?.lane === 'any' || label?.lane === lane
}

interface Turns {
  readonly lane: GatewayLane
  readonly lease: LaneLease
  readonly stop: AbortSignal
  /** Ends when another node has the lane, instead of becoming a standby for it. */
  readonly onlyWhile: boolean
}

/** `left`: the cluster has left. */
async function takeTurns(
  deps: GatewayDeps,
  init: LabelledGatewayInit,
  turns: Turns,
): Promise<'left' | 'stopped' | 'taken'> {
  const { lane, lease, stop, onlyWhile } = turns
  const unknown = (): string | undefined => (lease.state.is === 'unknown' ? lease.state.why : undefined)
  while (!stop.aborted) {
    const turn = lease.whileTurn()
    const until = AbortSignal.any([stop, turn.signal])
    try {
      if (turn.role === 'serve') {
        await runGateway(deps, init.configOf([lane]), until)
        if (!until.aborted) return 'left'
      } else if (turn.role === 'wait') await waitForWord(deps, `lane ${lane.lane}`, unknown, until)
      else if (onlyWhile) return 'taken'
      else if ((await standBy(deps, init, `lane ${lane.lane}`, until)) === 'left') return 'left'
    } finally {
      turn.close()
    }
  }
  return 'stopped'
}

/** Another node has the lane. This node removes everything of the lane, and the process is ready to take it. */
async function standBy(
  deps: GatewayDeps,
  init: LabelledGatewayInit,
  lane: string,
  until: AbortSignal,
): Promise<'left' | undefined> {
  const { status, logger } = deps
  status.readiness('gateway', () => undefined)
  status.plan('gateway', () => `# standing by for ${lane}\n`)
  if (await leaveUntilDone(deps, await leaveInit(deps, init, until), until)) {
    logger.info('on standby; the lane is removed from this node', { lane })
  }
  const leaving = watchLeaving(deps.api)
  try {
    await untilAborted(AbortSignal.any([until, leaving.signal]))
    return until.aborted ? undefined : 'left'
  } finally {
    leaving.close()
  }
}

/** What an earlier run left in the kernel stays in place until the API says which node has the lane. */
async function waitForWord(
  { status }: GatewayDeps,
  lane: string,
  unknown: () => string | undefined,
  until: AbortSignal,
): Promise<void> {
  status.readiness('gateway', () => {
    const why = unknown()
    return why === undefined ? undefined : `the holder of ${lane} is unknown: ${why}`
  })
  await untilAborted(until)
}

/**
 * What an earlier run left in the kernel stays in place: the label, although invalid, shows that this node is to be a
 * gateway.
 */
async function waitForLabel({ status }: GatewayDeps, { problem }: OtherLane, until: AbortSignal): Promise<void> {
  status.readiness('gateway', problem)
  await untilAborted(until)
}

/**
 * Removes what a gateway left on this node, and waits until the DaemonSet removes this pod or the Node gets a label.
 */
async function standAside(deps: GatewayDeps, init: LabelledGatewayInit, until: AbortSignal): Promise<void> {
  const { status, logger } = deps
  status.readiness('gateway', () => `Node ${init.node} is not a gateway: it has no label ${LABEL_GATEWAY}`)
  status.plan('gateway', () => '')
  logger.info('this node is not a gateway; removing what is left of one')
  if (await leaveUntilDone(deps, await leaveInit(deps, init, until), until))
    logger.info('nothing of the gateway is left on this node')
  await untilAborted(until)
}

/** Cleans up only if the API answers that this node is no gateway. Without an answer everything stays in place. */
async function lastLook(deps: GatewayDeps, init: LabelledGatewayInit, known: boolean | undefined): Promise<void> {
  const isGateway = known ?? (await asksForGateway(deps, init))
  if (isGateway) return
  deps.logger.info('this node is no longer a gateway; removing the lanes')
  const done = await withDeadline(deps.clock, CLEAN_MS, async (signal) =>
    leaveUntilDone(deps, await leaveInit(deps, init, signal), signal),
  )
  if (done) deps.logger.info('nothing of the gateway is left on this node')
  else {
    deps.logger.error(
      'not everything could be removed in time; the rest is removed when this node is a gateway again',
      {
        reason: 'LeftInKernel',
      },
    )
  }
}

/** True also for a label that is not valid, and if the API does not answer in time. */
async function asksForGateway({ logger, clock }: GatewayDeps, { askNode }: LabelledGatewayInit): Promise<boolean> {
  try {
    const node = await withDeadline(clock, ASK_MS, askNode)
    return node?.metadata.labels?.[LABEL_GATEWAY] !== undefined
  } catch (error) {
    const why = messageOf(error)
    logger.info('cannot determine whether this node is still a gateway: nothing is changed', { why })
    return true
  }
}

async function leaveInit(deps: GatewayDeps, { configOf }: LabelledGatewayInit, signal: AbortSignal) {
  // Which objects belong to this node is known once the caches are filled.
  await unlessAborted(whenCachesSynced(deps.api, signal), signal)
  const clusterId = readMembership(deps.api)?.spec.clusterId ?? ''
  return { config: configOf([]), metrics: gatewayMetrics(deps.metrics), clusterId }
}
