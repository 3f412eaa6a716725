/**
 * The gateway of a node of a real cluster. The label on the Node says which lane it may serve, or leaves that open, and
 * may come, change and go while the process runs. The holder of a lane's Lease serves it, and the others stand by. Stopping leaves the data path as it is, unless the API says at that moment that this node is a gateway no
 * more: a user who takes the label off gets the node back as it was.
 */
import { type LeaseStore, watchLeaving } from '../../kubeapi/kubeapi.ts'
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
import { knock, messageOf } from '../../runtime/runtime.ts'
import { readMembership, whenCachesSynced } from '../lanes/lanes.ts'
import { leaveUntilDone, runGateway } from '../main.ts'
import { type GatewayConfig, type GatewayDeps, gatewayMetrics } from '../world/world.ts'
import { UnmadeLane } from './failed-lane.ts'
import { handLaneOver } from './hand-over.ts'
import { LaneTenure } from './lane-lease.ts'
import { LaneSearch } from './lane-search.ts'
import type { LeaseWatch } from './lease-watch.ts'

// Which lane the label of this node's Node says, while a process serves another one, or none.

/** A Node that was made anew has no label until somebody puts it on again: its lane and its key wait for so long. */
export const LABEL_GRACE_MS = 5000

/** unusable: the Node has the label, and cannot be a gateway as it is. */
type NodeSays = GatewayLabel | 'unusable' | undefined

interface OtherLane {
  /** Aborts when the Node says another lane, or for some seconds none. */
  readonly signal: AbortSignal
  /** What it said last that counts. */
  readonly lane: () => NodeSays
  /** Why what it says now does not count; undefined: it does. */
  readonly problem: () => string | undefined
  readonly close: () => void
}

/** `before` is what this process serves now. */
function watchLane(
  { api, logger, clock }: Pick<GatewayDeps, 'api' | 'logger' | 'clock'>,
  node: string,
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
  /** Undefined: it says nothing that counts. */
  const read = (): { readonly lane: GatewayLabel | undefined } | undefined => {
    const object = api.cache('Node').get(node)
    // A Node that is not there may be on its way back: kubelets register anew.
    if (object === undefined) return undefined
    const error = gatewayProblem(object)
    const last = problem
    problem = error?.message
    if (error === undefined) return { lane: gatewayLabel(object) }
    // A slip of the hand takes no lane down.
    if (last !== problem) {
      const { reason, message } = error
      const stays = before === 'unusable' || before === undefined ? 'it takes no lane' : 'it stays as it was'
      logger.error(`this node cannot be a gateway as its Node is; ${stays}`, { reason, why: message })
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
  return a?.lane === b?.lane && a?.publicAddress === b?.publicAddress
}

export interface LabelledGatewayInit {
  readonly node: string
  readonly configOf: (lanes: readonly GatewayLane[]) => GatewayConfig
  /** What the API says now, past all caches; undefined when there is no such Node. Rejects without an answer. */
  readonly askNode: (signal: AbortSignal) => Promise<Node | undefined>
  readonly leases: LeaseStore
  /** How many numbers the nodes share whose label says none. */
  readonly activeGateways: number
  /** How long the Lease of a lane lasts. Default: LANE_LEASE_MS. */
  readonly leaseMs?: number
}

/**
 * How long the last look may take. Kubernetes kills a pod some time after it asked it to stop (install/workloads/pod.ts); in that
 * time a lane may be handed over (hand-over.ts), and the connection to the API is closed as well.
 */
export const ASK_MS = 3000
export const CLEAN_MS = 5000

/** What one process knows beside that. */
interface ProcessInit extends LabelledGatewayInit {
  readonly unmade: UnmadeLane
}

/** Runs until the signal, or until the cluster has left. `first`: what the Node says. Throws what runGateway() does. */
export async function runLabelledGateway(
  deps: GatewayDeps,
  given: LabelledGatewayInit,
  first: NodeSays,
  signal: AbortSignal,
): Promise<void> {
  const init = { ...given, unmade: new UnmadeLane(deps.clock) }
  let label = first
  let isGateway: boolean | undefined
  while (!signal.aborted) {
    const other = watchLane(deps, init.node, label)
    const until = AbortSignal.any([signal, other.signal])
    try {
      if (label === undefined) await standAside(deps, init, until)
      else if (label === 'unusable') await waitForLabel(deps, other, until)
      else {
        const end = await serveLabel(deps, init, { label, other, signal })
        // The cluster has left, and nothing of ours is on the node.
        if (end.is === 'left') return
        isGateway = end.isGateway
      }
    } finally {
      other.close()
    }
    if (!until.aborted) return
    label = other.lane()
    if (other.signal.aborted) deps.logger.info('the label of this node has changed', { lane: laneText(label) })
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
  /** This node has found the lane by itself, and looks for another one when somebody else has it. */
  readonly chosen?: LeaseWatch
}

/** stopped: `isGateway` is what the API said last, where it was asked. taken: another node has the lane now. */
type TurnEnd =
  { readonly is: 'left' } | { readonly is: 'stopped'; readonly isGateway?: boolean } | { readonly is: 'taken' }

/** As the label has it: its own lane, or one after another that this node finds. */
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

/** Stands by until there is a lane for this node; undefined once stopped, left when the cluster has left. */
async function findLane(
  deps: GatewayDeps,
  init: ProcessInit,
  until: AbortSignal,
): Promise<LeaseWatch | 'left' | undefined> {
  const parts = { ...deps, leases: init.leases, knock: deps.knock ?? knock }
  const search = new LaneSearch(parts, { node: init.node, numbers: init.activeGateways, unmade: init.unmade })
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

/** Serves the lane while it is this node's turn, and stands by else, until it is to end and others have the lane. */
async function serveInTurn(
  deps: GatewayDeps,
  init: ProcessInit,
  { lane, other, signal, chosen }: TurnInit,
): Promise<TurnEnd> {
  const tenure = new LaneTenure(
    { ...deps, leases: init.leases, knock: deps.knock ?? knock },
    {
      node: init.node,
      lane: lane.lane,
      numbers: init.activeGateways,
      unmade: init.unmade,
      ...(init.leaseMs === undefined ? {} : { leaseMs: init.leaseMs }),
      ...(chosen === undefined ? {} : { chosen }),
    },
  )
  const [over, stop] = [new AbortController(), new AbortController()]
  const holding = tenure.run(over.signal)
  let isGateway: boolean | undefined
  const ending = untilAborted(AbortSignal.any([signal, other.signal, over.signal])).then(async () => {
    if (over.signal.aborted) return
    if (signal.aborted) isGateway = await asksForGateway(deps, init)
    const hasMoved = other.signal.aborted && !leaves(other.lane(), lane.lane)
    // Another address is a new start of the same gateway.
    if (isGateway === false) await handLaneOver(deps, tenure, 'gateway')
    else if (hasMoved) await handLaneOver(deps, tenure, (await canTake(deps, init, other.lane())) ? 'lane' : 'gateway')
    else if (signal.aborted) await handLaneOver(deps, tenure, 'process')
    stop.abort()
  })
  try {
    const turns = { lane, tenure, stop: stop.signal, onlyWhile: chosen !== undefined }
    const end = await takeTurns({ ...deps, handover: tenure }, init, turns)
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

/** The lane of the new label is nobody's: this node carries again as soon as it has let go of the old one. */
async function canTake({ clock }: GatewayDeps, { leases, node }: ProcessInit, label: NodeSays): Promise<boolean> {
  if (label === undefined || label === 'unusable' || label.lane === 'any') return false
  const name = laneLeaseName(label.lane)
  const read = withDeadline(clock, ASK_MS, async (signal) => {
    const { holderIdentity } = (await leases.read(name, signal))?.spec ?? {}
    return (holderIdentity ?? '') === '' || holderIdentity === node
  })
  return read.catch(() => false)
}

/** A label that leaves a node the lane that it serves. */
function leaves(label: NodeSays, lane: number): boolean {
  if (label === 'unusable') return true
  return label?.lane === 'any' || label?.lane === lane
}

interface Turns {
  readonly lane: GatewayLane
  readonly tenure: LaneTenure
  readonly stop: AbortSignal
  /** Not beside another node that has it. */
  readonly onlyWhile: boolean
}

/** left: the cluster has left. */
async function takeTurns(
  deps: GatewayDeps,
  init: LabelledGatewayInit,
  turns: Turns,
): Promise<'left' | 'stopped' | 'taken'> {
  const { lane, tenure, stop, onlyWhile } = turns
  const unknown = (): string | undefined => (tenure.state.is === 'unknown' ? tenure.state.why : undefined)
  while (!stop.aborted) {
    const turn = tenure.whileTurn()
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

/** The lane is another node's: nothing of it is here but the process, which is ready to take it. */
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
    logger.info('standing by; nothing of the lane is here', { lane })
  }
  const leaving = watchLeaving(deps.api)
  try {
    await untilAborted(AbortSignal.any([until, leaving.signal]))
    return until.aborted ? undefined : 'left'
  } finally {
    leaving.close()
  }
}

/** What an earlier run left stays as it is until the API says whose the lane is. */
async function waitForWord(
  { status }: GatewayDeps,
  lane: string,
  unknown: () => string | undefined,
  until: AbortSignal,
): Promise<void> {
  status.readiness('gateway', () => {
    const why = unknown()
    return why === undefined ? undefined : `who holds ${lane} is not known: ${why}`
  })
  await untilAborted(until)
}

/** What an earlier run left carries on as it is: whoever wrote the label meant this node to be a gateway. */
async function waitForLabel({ status }: GatewayDeps, { problem }: OtherLane, until: AbortSignal): Promise<void> {
  status.readiness('gateway', problem)
  await untilAborted(until)
}

/** Takes out what a gateway left here, and waits. The DaemonSet takes this pod away, or a label comes. */
async function standAside(deps: GatewayDeps, init: LabelledGatewayInit, until: AbortSignal): Promise<void> {
  const { status, logger } = deps
  status.readiness('gateway', () => `Node ${init.node} is no gateway: it has no label ${LABEL_GATEWAY}`)
  status.plan('gateway', () => '')
  logger.info('this node is no gateway; taking out what is left of one')
  if (await leaveUntilDone(deps, await leaveInit(deps, init, until), until)) logger.info('nothing of ours is left')
  await untilAborted(until)
}

/** Cleans up only where the API answers and says so. Without an answer everything stays. */
async function lastLook(deps: GatewayDeps, init: LabelledGatewayInit, known: boolean | undefined): Promise<void> {
  const isGateway = known ?? (await asksForGateway(deps, init))
  if (isGateway) return
  deps.logger.info('this node is no gateway any more; taking the lanes down')
  const done = await withDeadline(deps.clock, CLEAN_MS, async (signal) =>
    leaveUntilDone(deps, await leaveInit(deps, init, signal), signal),
  )
  if (done) deps.logger.info('nothing of ours is left')
  else {
    deps.logger.error('not all could be taken out in time; what is left goes when this node is a gateway again', {
      reason: 'LeftInKernel',
    })
  }
}

/** True also for a label that cannot be used, and when nobody answers in time. */
async function asksForGateway({ logger, clock }: GatewayDeps, { askNode }: LabelledGatewayInit): Promise<boolean> {
  try {
    const node = await withDeadline(clock, ASK_MS, askNode)
    return node?.metadata.labels?.[LABEL_GATEWAY] !== undefined
  } catch (error) {
    const why = messageOf(error)
    logger.info('the API does not say whether this node is still a gateway: everything stays', { why })
    return true
  }
}

async function leaveInit(deps: GatewayDeps, { configOf }: LabelledGatewayInit, signal: AbortSignal) {
  // Which of the objects are ours is known once they have been read.
  await unlessAborted(whenCachesSynced(deps.api, signal), signal)
  const clusterId = readMembership(deps.api)?.spec.clusterId ?? ''
  return { config: configOf([]), metrics: gatewayMetrics(deps.metrics), clusterId }
}
