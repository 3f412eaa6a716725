/**
 * The gateway of one node: lanes to the other clusters, their health, and the translation of this cluster's
 * addresses. Runs until the signal (the kernel stays as it is) or until the cluster has left (nothing stays).
 */
import { NFT_TABLE_GATEWAY } from '../model/kernel-ids.ts'
import { HEARTBEAT_MS } from '../model/lanes/heartbeat.ts'
import { DEFAULT_LOOP, ReconcileLoop } from '../reconcile/loop.ts'
import { watchedCaches } from './caches.ts'
import type { GatewayConfig } from './config.ts'
import { gatewayPlanText } from './describe-plan.ts'
import type { GatewayDeps } from './deps.ts'
import { HandshakeTimes } from './cable/wireguard/handshake-times.ts'
import { LaneReconciler, ensureLaneKeys } from './lane-loop.ts'
import { leaveNode } from './leave-node.ts'
import { leaveUntilDone } from './leave-until-done.ts'
import { watchMembership } from './membership.ts'
import { type GatewayMetrics, gatewayMetrics } from './metrics.ts'
import { openUdpProbeSocket } from './health/probe-socket.ts'
import { Probing } from './health/probing.ts'
import { StatusReconciler } from './status/status-loop.ts'
import { unlessAborted } from '../reconcile/unless-aborted.ts'
import { WakeTimer } from '../reconcile/wake-timer.ts'

export type { GatewayDeps } from './deps.ts'
export { type GatewayConfig, type GatewayConfigInit, gatewayConfig } from './config.ts'
export { describeGatewayPlan } from './describe-plan.ts'
export { readGatewayWorld, whenCachesSynced } from './read-world.ts'

/** Throws LaneKeyError when a lane's key file is there but not usable. */
export async function runGateway(deps: GatewayDeps, config: GatewayConfig, signal: AbortSignal): Promise<void> {
  const { cluster, logger, status } = deps
  const metrics = gatewayMetrics(deps.metrics)
  const caches = watchedCaches(cluster)
  status.readiness('gateway caches', caches.notSynced)
  if (!(await unlessAborted(caches.whenSynced(signal), signal))) return

  const leaving = new AbortController()
  const membership = watchMembership(cluster, (clusterId) => leaving.abort(clusterId))
  try {
    // Started anew while the cluster leaves: the key was removed, and must not come back.
    if (!leaving.signal.aborted) {
      await ensureLaneKeys(deps, config)
      await serve(deps, config, metrics, AbortSignal.any([signal, leaving.signal]))
    }
    if (!leaving.signal.aborted || signal.aborted) return
    logger.info('the cluster leaves; taking the lanes down')
    if (await leaveUntilDone(deps, { config, metrics, clusterId: String(leaving.signal.reason) }, signal)) {
      logger.info('left')
    }
  } finally {
    membership.close()
  }
}

/**
 * Takes everything of the gateway out of this node once, for a cluster that is no member any more. Throws what failed,
 * after everything else has been done.
 */
export async function cleanGatewayNode(deps: GatewayDeps, config: GatewayConfig, signal: AbortSignal): Promise<void> {
  await watchedCaches(deps.cluster).whenSynced(signal)
  await leaveNode(deps, { config, metrics: gatewayMetrics(deps.metrics), clusterId: '' }, signal)
}

/** Keeps the kernel at the plan and the status true, until the signal. */
async function serve(
  deps: GatewayDeps,
  config: GatewayConfig,
  metrics: GatewayMetrics,
  signal: AbortSignal,
): Promise<void> {
  const { clock, logger, cluster, status } = deps
  const outcome: Outcome = { failure: undefined }
  const openSocket = deps.openProbeSocket ?? openUdpProbeSocket
  const onTransition = (): void => {
    lanes.poke()
    reports.poke()
  }
  const probing = new Probing({ clock, logger, metrics, openSocket, onTransition }, config)
  const wake = new WakeTimer(clock, () => lanes.poke())
  const handshakeTimes = new HandshakeTimes()
  const wakeAt = (atMs: number): void => wake.at(atMs)
  const laneRounds = new LaneReconciler(deps, { config, metrics, probing, handshakeTimes, wakeAt })
  const statusRounds = new StatusReconciler(deps, {
    config,
    metrics,
    probing,
    handshakeTimes,
    lanes: () => laneRounds.plan?.lanes.lanes,
    hasTable6: () => (laneRounds.plan?.nft6.length ?? 0) > 0,
    routed: () => laneRounds.routed,
    failure: () => outcome.failure,
  })
  const lanes = laneLoop(deps, { metrics, outcome, rounds: laneRounds, onRun: () => reports.poke() })
  const reports = statusLoop(deps, config, statusRounds)
  const waiting = (): string | undefined =>
    laneRounds.plan === undefined ? 'this cluster has no Cluster object yet' : undefined
  status.readiness('gateway', () => outcome.failure ?? waiting())
  status.plan('gateway', () => (laneRounds.plan === undefined ? '' : gatewayPlanText(laneRounds.plan)))
  const stopCaches = watchedCaches(cluster).onChange(() => lanes.poke())
  const stopRanges = watchedCaches(cluster).onRanges(() => wake.at(clock.monotonic() + RANGES_SETTLE_MS))
  const stopHandover = deps.handover?.onChange(() => lanes.poke())
  const stopKernel = deps.routes.onChange(() => wake.at(clock.monotonic() + KERNEL_SETTLE_MS))
  const stopTables = followTables(deps, () => {
    laneRounds.suspectTables()
    lanes.poke()
  })
  try {
    await Promise.all([lanes.run(signal), reports.run(signal)])
  } finally {
    stopCaches()
    stopRanges()
    stopKernel()
    stopTables()
    stopHandover?.()
    wake.close()
    probing.close()
  }
}

/** Where the kernel does not tell of changes by others, they are found by the looks in between. */
function followTables({ nft, nft6, logger }: GatewayDeps, onChange: () => void): () => void {
  const stops: (() => void)[] = []
  try {
    for (const one of [nft, nft6]) stops.push(one.onChange(NFT_TABLE_GATEWAY, onChange))
  } catch (error) {
    logger.warn('what others change in nftables is found late', { error: messageOf(error) })
  }
  return () => stops.forEach((stop) => stop())
}

/** Why the last round failed; undefined when it went well. */
interface Outcome {
  failure: string | undefined
}

function laneLoop(
  { clock, logger }: GatewayDeps,
  init: {
    readonly metrics: GatewayMetrics
    readonly outcome: Outcome
    readonly rounds: LaneReconciler
    readonly onRun: () => void
  },
): ReconcileLoop {
  const { metrics, outcome, rounds } = init
  const onError = (error: unknown): void => {
    const failure = messageOf(error)
    if (failure !== outcome.failure)
      logger.error('lanes: round failed; it is tried again', { reason: 'RoundFailed', error: failure })
    outcome.failure = failure
  }
  const onRun = ({ ok, ms }: { readonly ok: boolean; readonly ms: number }): void => {
    if (ok) outcome.failure = undefined
    metrics.rounds.inc({ result: ok ? 'ok' : 'failed' })
    metrics.roundDuration.observe(ms / 1000)
    init.onRun()
  }
  const pace = { ...DEFAULT_LOOP, retryMaxMs: LANE_RETRY_MAX_MS }
  return new ReconcileLoop({ clock, onError, onRun }, pace, (signal) => rounds.reconcile(signal))
}

function statusLoop({ clock, logger }: GatewayDeps, config: GatewayConfig, rounds: StatusReconciler): ReconcileLoop {
  const onError = (error: unknown): void => {
    logger.error('status: round failed', { reason: 'RoundFailed', error: messageOf(error) })
  }
  const pace = { ...DEFAULT_LOOP, resyncMs: Math.min(config.statusMs, HEARTBEAT_MS), retryMaxMs: STATUS_RETRY_MAX_MS }
  return new ReconcileLoop({ clock, onError }, pace, (signal) => rounds.reconcile(signal))
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** While one step fails, the others go on: a lane that goes down must not stay routed for longer than this. */
const LANE_RETRY_MAX_MS = 1000

/** Others wait for the heartbeat: once the API server is back, it must move sooner than they lose patience. */
const STATUS_RETRY_MAX_MS = 2000

/** Other programs change routes and links in bursts, and so do our own rounds. */
const KERNEL_SETTLE_MS = 200

/** Each pod may change the ranges of its node; what is not known yet is tracked, which does no harm. */
const RANGES_SETTLE_MS = 1000
