/**
 * The gateway of one node: lanes to the other clusters, their health, and the translation of this cluster's addresses.
 * It runs until the signal, and then leaves the kernel as it is, or until the cluster has left, and then removes
 * everything.
 */
import { NO_ROUTING, Round, applyGuard, applyRouting } from '../kernel/apply/apply.ts'
import { removeTable } from '../kernel/nft/nft.ts'
import { type Notice, openUdpProbeSocket } from '../kernel/probing/probing.ts'
import { restoreForwarding } from '../kernel/tuning/tuning.ts'
import { watchLeaving } from '../kubeapi/kubeapi.ts'
import { NFT_TABLE_REACH, NFT_TABLE_RELAY } from '../model/model.ts'
import { FAMILIES } from '../model/addresses/addresses.ts'
import { isPublicName } from '../model/lanes/lanes.ts'
import { DEFAULT_LOOP, unlessAborted, untilDone } from '../reconcile/reconcile.ts'
import { proxyChoiceOnCall } from '../runtime/proxy/proxy.ts'
import { messageOf } from '../runtime/runtime.ts'
import { Probing, silentElsewhere, sizeHints, watchSleeping } from './health/health.ts'
import {
  LANE_GUARD,
  LaneLoop,
  gatewayPlanText,
  laneScope,
  ownEndpoints,
  whenCachesSynced,
  whyCachesNotSynced,
} from './lanes/lanes.ts'
import { removeGatewayTable } from './nft/nft.ts'
import { PortMappings, PublicName, Relays, endPortMappings } from './reach/reach.ts'
import { startRenewal } from './rotation/rotation.ts'
import { StatusLoop } from './status/status.ts'
import { type GatewayConfig, type GatewayDeps, type GatewayMetrics, forwarding, gatewayMetrics } from './world/world.ts'

export type { GatewayDeps } from './world/world.ts'
export { type GatewayConfig, type GatewayConfigInit, gatewayConfig } from './world/world.ts'
export { describeGatewayPlan } from './lanes/lanes.ts'
export { readGatewayWorld, whenCachesSynced } from './lanes/lanes.ts'

/** Throws what Cable.prepare() throws: LaneKeyError if the key file of a lane exists but is not usable. */
export async function runGateway(deps: GatewayDeps, config: GatewayConfig, signal: AbortSignal): Promise<void> {
  const { api, logger, status } = deps
  const metrics = gatewayMetrics(deps.metrics)
  status.readiness('gateway', () => 'starting')
  status.readiness('gateway caches', () => whyCachesNotSynced(api))
  if (!(await unlessAborted(whenCachesSynced(api, signal), signal))) return

  const leaving = watchLeaving(api)
  try {
    // If the process was restarted while the cluster leaves, the key was removed and must not be created again.
    if (!leaving.signal.aborted) {
      // This comes before the first round, so that a bad key file stops the start.
      await deps.cable.prepare(config.lanes.map(({ lane }) => lane))
      await serve(deps, config, metrics, AbortSignal.any([signal, leaving.signal]))
    }
    if (!leaving.signal.aborted || signal.aborted) return
    logger.info('the cluster leaves the clusterset: removing the lanes')
    if (await leaveUntilDone(deps, { config, metrics, clusterId: leaving.clusterId ?? '' }, signal)) {
      logger.info('left')
    }
  } finally {
    leaving.close()
  }
}

/**
 * Removes everything of the gateway from this node once, for a cluster that is no longer a member. Throws what failed,
 * after all other steps.
 */
export async function cleanGatewayNode(deps: GatewayDeps, config: GatewayConfig, signal: AbortSignal): Promise<void> {
  await whenCachesSynced(deps.api, signal)
  await leaveNode(deps, { config, metrics: gatewayMetrics(deps.metrics), clusterId: '' }, signal)
}

/** Keeps the kernel equal to the plan and the status current, until the signal. */
async function serve(
  deps: GatewayDeps,
  config: GatewayConfig,
  metrics: GatewayMetrics,
  signal: AbortSignal,
): Promise<void> {
  const { api, clock, logger, status } = deps
  const openSocket = deps.openProbeSocket ?? openUdpProbeSocket
  const onTransition = (): void => {
    if (isDown()) name?.poke()
    lanes.linksChanged('state')
    reports.pokeSoon()
  }
  const onSuspect = (): void => {
    relays.suspectsChanged()
    lanes.linksChanged('suspect')
  }
  const onUnanswered = (): void => reports.poke()
  const notices = {
    onNotice: (key: string, notice: Notice): boolean => renewal?.following.onNotice(key, notice) === true,
    onReceipt: (key: string, notice: Notice): void => renewal?.loop.onReceipt(key, notice),
  }
  const probing = new Probing(
    { clock, logger, metrics, openSocket, onTransition, onSuspect, onUnanswered, onSize: onTransition, ...notices },
    config,
  )
  const isDown = (): boolean => [...probing.health().values()].some(({ state }) => state !== 'up')
  const name = publicNameOf(deps, config, { isDown, onChange: () => lanes.poke() })
  const publicName = () => name?.view
  const proxies = deps.proxies ?? proxyChoiceOnCall(process.env)
  const nextIdentity = (): string | undefined => renewal?.loop.nextIdentity
  const health = () => probing.health()
  const relays = new Relays(deps, { config, metrics, proxies, openSocket, health, onChange: () => lanes.poke() })
  const onMapping = (): void => {
    lanes.poke()
    reports.poke()
  }
  const portMappings = new PortMappings(deps, {
    ...{ stateDir: config.stateDir, onChange: onMapping },
    seen: () => relays.seen,
  })
  await portMappings.prepare()
  const lanes = new LaneLoop(deps, {
    config,
    metrics,
    probing,
    nextIdentity,
    publicName,
    relays,
    portMappings,
    onRound: () => reports.poke(),
  })
  const rotation = () => renewal?.loop.report
  const portMapping = () => portMappings.view
  const reports = new StatusLoop(deps, { config, metrics, probing, lanes, rotation, publicName, relays, portMapping })
  const renewal = startRenewal(deps, { config, probing, lanes, onChange: () => reports.poke() }, signal)
  const sleeping = {
    devices: () => lanes.plan?.lanes.lanes,
    health: () => probing.health(),
    sleeping: probing.sleeping,
  }
  status.readiness('gateway', () => lanes.notReady)
  status.plan('gateway', () => (lanes.plan === undefined ? '' : gatewayPlanText(lanes.plan, deps.cable.rules)))
  const stopFollowing = lanes.follow()
  const stopHints = api.cache('Gateway').onChange((change) => {
    for (const hint of sizeHints(change, config.node)) probing.suspectSize(hint)
    for (const cluster of silentElsewhere(change, config.node)) probing.hasten(cluster)
  })
  try {
    await Promise.all([
      lanes.run(signal),
      reports.run(signal),
      renewal?.loop.run(signal),
      name?.run(signal),
      relays.run(signal),
      portMappings.run(signal),
      watchSleeping(deps, sleeping, signal),
    ])
  } finally {
    stopFollowing()
    stopHints()
    reports.close()
    probing.close()
  }
}

/** Undefined if the public address is no DNS name. */
function publicNameOf(
  deps: GatewayDeps,
  { lanes: [lane], stateDir }: GatewayConfig,
  { isDown, onChange }: { readonly isDown: () => boolean; readonly onChange: () => void },
): PublicName | undefined {
  const name = lane?.publicAddress
  if (name === undefined || !isPublicName(name)) return undefined
  return new PublicName(deps, { name, stateDir, isDown, onChange })
}

// Removes everything of the gateway from this node and from the API, when the cluster leaves the clusterset or the node
// is no longer a gateway.

interface LeaveInit {
  readonly config: GatewayConfig
  readonly metrics: GatewayMetrics
  readonly clusterId: string
}

/**
 * Removes the devices first, so that nothing more is sent: their routes disappear with them, and no packet from a lane
 * address leaves by another device. The policy is removed last. The objects are deleted when the kernel is clean,
 * because `sealane leave` waits for that. Throws what failed; another call continues.
 */
async function leaveNode(deps: GatewayDeps, init: LeaveInit, signal: AbortSignal): Promise<void> {
  const { config } = init
  const round = new Round({ logger: deps.logger, changes: init.metrics.changes })
  const swept = await deps.cable.remove([], round, signal)
  await applyRouting(deps.routes, NO_ROUTING, laneScope(deps), round, signal)
  // A lane always needs its policy, even a lane that cannot be removed.
  if (swept) await (await applyGuard(deps.routes, [], LANE_GUARD, round, signal)).removeOthers()
  if (swept) for (const nft of [deps.nft, deps.nft6]) await removeGatewayTable(nft, round, signal)
  for (const table of [NFT_TABLE_RELAY, NFT_TABLE_REACH])
    await round.attempt(() => removeTable(deps.nft, table, signal))
  for (const family of FAMILIES) {
    const { name, setting, marker } = forwarding(config, family)
    const restored = await round.attempt(() => restoreForwarding(deps.sysctl, marker, setting))
    if (restored?.value === true) deps.logger.info(`switched ${name} forwarding off again`)
  }
  await round.attempt(() => deps.cable.prepare([]))
  await round.attempt(() => endPortMappings(deps.clock, config))
  round.finish()
  for (const endpoint of ownEndpoints(deps, init.clusterId, config.node)) {
    await deps.api.remove('Endpoint', endpoint.metadata.name, undefined, signal)
  }
  await deps.api.remove('Gateway', config.node, undefined, signal)
}

/**
 * Repeats leaveNode() with growing pauses. Resolves to true once everything is removed, to false if the signal came
 * first.
 */
export function leaveUntilDone(deps: GatewayDeps, init: LeaveInit, signal: AbortSignal): Promise<boolean> {
  const { clock, logger } = deps
  const backoff = { minMs: DEFAULT_LOOP.retryMinMs, maxMs: DEFAULT_LOOP.retryMaxMs }
  const onFailure = (error: unknown): void => {
    logger.error('leaving: removal failed; retrying', { reason: 'RoundFailed', why: messageOf(error) })
  }
  return untilDone(() => leaveNode(deps, init, signal), { clock, backoff, onFailure }, signal)
}
