/**
 * The gateway of a node of a real cluster. The label on the Node says which lane it may serve, and may come, change and
 * go while the process runs. Of several nodes with one label the holder of the lane's Lease serves, and the others
 * stand by. Stopping leaves the data path as it is, unless the API says at that moment that this node is a gateway no
 * more: a user who takes the label off gets the node back as it was.
 */
import type { LeaseStore } from '../../kubeapi/lease-store.ts'
import { type GatewayLane, LABEL_GATEWAY } from '../../model/lanes/gateway-node.ts'
import type { Node } from '../../model/objects.ts'
import { knock } from '../../runtime/knock.ts'
import { messageOf } from '../../runtime/thrown.ts'
import type { GatewayConfig } from '../config.ts'
import type { GatewayDeps } from '../deps.ts'
import { handLaneOver } from './hand-lane-over.ts'
import { LaneTenure } from './lane-tenure.ts'
import { leaveUntilDone } from '../leave-node.ts'
import { runGateway } from '../main.ts'
import { gatewayMetrics } from '../metrics.ts'
import { readMembership, whenCachesSynced } from '../read-world.ts'
import { unlessAborted, untilAborted, withDeadline } from '../../reconcile/until-aborted.ts'
import { type OtherLane, watchLane } from './watch-lane.ts'

export interface LabelledGatewayInit {
  readonly node: string
  readonly configOf: (lanes: readonly GatewayLane[]) => GatewayConfig
  /** What the API says now, past all caches; undefined when there is no such Node. Rejects without an answer. */
  readonly askNode: (signal: AbortSignal) => Promise<Node | undefined>
  readonly leases: LeaseStore
}

/**
 * How long the last look may take. Kubernetes kills a pod some time after it asked it to stop (install/pod.ts); in that
 * time a lane may be handed over (hand-lane-over.ts), and the connection to the API is closed as well.
 */
export const ASK_MS = 3000
export const CLEAN_MS = 5000

/**
 * Runs until the signal, or until the cluster has left. `first` is the lane of this node now; undefined: none. Throws
 * what runGateway() does.
 */
export async function runLabelledGateway(
  deps: GatewayDeps,
  init: LabelledGatewayInit,
  first: GatewayLane | undefined,
  signal: AbortSignal,
): Promise<void> {
  let lane = first
  let isGateway: boolean | undefined
  while (!signal.aborted) {
    const other = watchLane(deps, init.node, lane)
    const until = AbortSignal.any([signal, other.signal])
    try {
      if (lane === undefined) await standAside(deps, init, until)
      else {
        const end = await serveInTurn(deps, init, { lane, other, signal })
        // The cluster has left, and nothing of ours is on the node.
        if (end.is === 'left') return
        isGateway = end.isGateway
      }
    } finally {
      other.close()
    }
    if (!until.aborted) return
    lane = other.lane()
    if (other.signal.aborted) deps.logger.info('the label of this node has changed', { lane: lane?.lane ?? 'none' })
  }
  await lastLook(deps, init, isGateway)
}

interface TurnInit {
  readonly lane: GatewayLane
  readonly other: OtherLane
  readonly signal: AbortSignal
}

/** stopped: `isGateway` is what the API said last, where it was asked. */
type TurnEnd = { readonly is: 'left' } | { readonly is: 'stopped'; readonly isGateway?: boolean }

/** Serves the lane while it is this node's turn, and stands by else, until it is to end and others have the lane. */
async function serveInTurn(
  deps: GatewayDeps,
  init: LabelledGatewayInit,
  { lane, other, signal }: TurnInit,
): Promise<TurnEnd> {
  const tenure = new LaneTenure(
    { ...deps, leases: init.leases, knock: deps.knock ?? knock },
    { node: init.node, lane: lane.lane },
  )
  const [over, stop] = [new AbortController(), new AbortController()]
  const holding = tenure.run(over.signal)
  let isGateway: boolean | undefined
  const ending = untilAborted(AbortSignal.any([signal, other.signal, over.signal])).then(async () => {
    if (over.signal.aborted) return
    if (signal.aborted) isGateway = await asksForGateway(deps, init)
    const goes = isGateway === false || (other.signal.aborted && other.lane()?.lane !== lane.lane)
    // Another address is a new start of the same gateway.
    if (signal.aborted || goes) await handLaneOver(deps, tenure, goes)
    stop.abort()
  })
  try {
    const left = await takeTurns({ ...deps, handover: tenure }, init, { lane, tenure, stop: stop.signal })
    if (left) return { is: 'left' }
    await ending
    return { is: 'stopped', ...(isGateway === undefined ? {} : { isGateway }) }
  } finally {
    over.abort()
    await Promise.all([holding, ending])
  }
}

interface Turns {
  readonly lane: GatewayLane
  readonly tenure: LaneTenure
  readonly stop: AbortSignal
}

/** True when the cluster has left; false once stopped. */
async function takeTurns(deps: GatewayDeps, init: LabelledGatewayInit, turns: Turns): Promise<boolean> {
  const { lane, tenure, stop } = turns
  while (!stop.aborted) {
    const turn = tenure.whileTurn()
    const until = AbortSignal.any([stop, turn.signal])
    try {
      if (turn.role === 'serve') {
        await runGateway(deps, init.configOf([lane]), until)
        if (!until.aborted) return true
      } else if (turn.role === 'stand by') await standBy(deps, init, tenure, until)
      else await waitForWord(deps, tenure, until)
    } finally {
      turn.close()
    }
  }
  return false
}

/** The lane is another node's: nothing of it is here but the process, which is ready to take it. */
async function standBy(
  deps: GatewayDeps,
  init: LabelledGatewayInit,
  tenure: LaneTenure,
  until: AbortSignal,
): Promise<void> {
  const { status, logger } = deps
  status.readiness('gateway', () => undefined)
  status.plan('gateway', () => `# standing by for lane ${tenure.lane}\n`)
  if (await leaveUntilDone(deps, await leaveInit(deps, init, until), until)) {
    logger.info('standing by; nothing of the lane is here', { lane: tenure.lane })
  }
  await untilAborted(until)
}

/** What an earlier run left stays as it is until the API says whose the lane is. */
async function waitForWord({ status }: GatewayDeps, tenure: LaneTenure, until: AbortSignal): Promise<void> {
  status.readiness('gateway', () =>
    tenure.state.is === 'unknown' ? `who holds lane ${tenure.lane} is not known: ${tenure.state.why}` : undefined,
  )
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
