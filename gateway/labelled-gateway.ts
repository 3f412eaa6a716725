/**
 * The gateway of a node of a real cluster. The label on the Node says which lane it serves, and may come, change and go
 * while the process runs. Stopping leaves the data path as it is, unless the API says at that moment that this node is a
 * gateway no more: whoever takes the label off gets the node back as it was.
 */
import { type GatewayLane, LABEL_GATEWAY } from '../model/gateway-node.ts'
import type { Node } from '../model/objects.ts'
import type { GatewayConfig } from './config.ts'
import type { GatewayDeps } from './gateway-deps.ts'
import { leaveUntilDone } from './leave-until-done.ts'
import { runGateway } from './main.ts'
import { gatewayMetrics } from './metrics.ts'
import { readMembership, whenCachesSynced } from './read-world.ts'
import { unlessAborted } from './unless-aborted.ts'
import { watchLane } from './watch-lane.ts'

export interface LabelledGatewayInit {
  readonly node: string
  readonly configOf: (lanes: readonly GatewayLane[]) => GatewayConfig
  /** What the API says now, past all caches; undefined when there is no such Node. Rejects without an answer. */
  readonly askNode: (signal: AbortSignal) => Promise<Node | undefined>
}

/**
 * How long the last look may take. Kubernetes kills a pod some time after it asked it to stop (install/pod.ts); in that
 * time the connection to the API is closed as well.
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
  while (!signal.aborted) {
    const other = watchLane(deps, init.node, lane)
    const until = AbortSignal.any([signal, other.signal])
    try {
      if (lane === undefined) await standAside(deps, init, until)
      else await runGateway(deps, init.configOf([lane]), until)
    } finally {
      other.close()
    }
    // It ended by itself: the cluster has left, and nothing of ours is on the node.
    if (!until.aborted) return
    lane = other.lane()
    if (other.signal.aborted) deps.logger.info('the label of this node has changed', { lane: lane?.lane ?? 'none' })
  }
  await lastLook(deps, init)
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
async function lastLook(deps: GatewayDeps, init: LabelledGatewayInit): Promise<void> {
  const isGateway = await withDeadline(deps, ASK_MS, (signal) => asksForGateway(deps, init, signal))
  if (isGateway) return
  deps.logger.info('this node is no gateway any more; taking the lanes down')
  const done = await withDeadline(deps, CLEAN_MS, async (signal) =>
    leaveUntilDone(deps, await leaveInit(deps, init, signal), signal),
  )
  if (done) deps.logger.info('nothing of ours is left')
  else deps.logger.error('not all could be taken out in time; what is left goes when this node is a gateway again')
}

/** True also for a label that cannot be used, and when nobody answers in time. */
async function asksForGateway(
  { logger }: GatewayDeps,
  { askNode }: LabelledGatewayInit,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const node = await askNode(signal)
    return node?.metadata.labels?.[LABEL_GATEWAY] !== undefined
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    logger.info('the API does not say whether this node is still a gateway: everything stays', { reason })
    return true
  }
}

async function leaveInit(deps: GatewayDeps, { configOf }: LabelledGatewayInit, signal: AbortSignal) {
  // Which of the objects are ours is known once they have been read.
  await unlessAborted(whenCachesSynced(deps.cluster, signal), signal)
  const clusterId = readMembership(deps.cluster)?.spec.clusterId ?? ''
  return { config: configOf([]), metrics: gatewayMetrics(deps.metrics), clusterId }
}

async function withDeadline<T>(
  { clock }: GatewayDeps,
  ms: number,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController()
  const cancel = clock.setTimer(ms, () => late.abort(new Error(`no answer within ${ms / 1000} s`)))
  try {
    return await work(late.signal)
  } finally {
    cancel()
  }
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
