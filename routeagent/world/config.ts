/** Configuration of the route agent of one node. Everything else comes from the cluster's objects. */
import { join } from 'node:path'
import type { OpenPort } from '../../model/addresses/addresses.ts'
import type { OffloadSetting } from '../../model/model.ts'
import { type Clock, DEFAULT_LOOP, type LoopDeps, type LoopInit } from '../../reconcile/reconcile.ts'
import { reportedLoop } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { RouteAgentMetrics } from './metrics.ts'

export interface RouteAgentConfig {
  /** metadata.name of this machine's Node object. */
  readonly node: string
  /** Written into RouteAgent.status. */
  readonly version?: string
  /** Private directory of this node, which records that the route agent switched IP forwarding on. */
  readonly stateDir: string
  /** Ports of this node that pods of other clusters may call. Default: none. */
  readonly openPorts?: readonly OpenPort[]
  /**
   * How this node stays closed while it has no access rules. Absent: XFRM policies drop what other clusters send to pods.
   * true: rules of routing drop it, and what they send to this node. false: it is open.
   */
  readonly failClosed?: boolean
  /** The UDP port of the overlay, the same on all nodes. Default: VXLAN_PORT. */
  readonly overlayPort?: number
  /** Whether the overlay device leaves checksums to the network card. Default: auto. */
  readonly overlayOffload?: OffloadSetting
  /** Bridge ports of backends are put into hairpin mode where that is needed. On Kubernetes the CNI does that. */
  readonly setsHairpin?: boolean
  /** The longest interval between status writes of this cluster's gateways. Default: HEARTBEAT_MS. */
  readonly heartbeatMs?: number
}

/** File that records that the route agent switched IP forwarding on. */
export function forwardingMarker({ stateDir }: Pick<RouteAgentConfig, 'stateDir'>): string {
  return join(stateDir, 'routeagent-switched-on-forwarding')
}

/** File that records which bridge ports the route agent changed. */
export function hairpinRecord({ stateDir }: Pick<RouteAgentConfig, 'stateDir'>): string {
  return join(stateDir, 'routeagent-hairpin-ports')
}

export const DEFAULT_VERSION = 'dev'
/** Interval of the checks for drift in the routes and in the nft table. */
export const RESYNC_MS = 30_000
/** The node writes its report again after this time, in case another program deleted it. */
export const REPORT_AGAIN_MS = 25_000
/** Interval of counting the connections to other clusters. */
export const COUNT_CONNECTIONS_MS = 60_000
/** Shortest time between two looks for pods outside the pod CIDRs. */
export const OUTSIDE_PODS_MS = 10_000
/** Shortest time between the starts of two runs of a loop. */
export const MIN_INTERVAL_MS = 10

/**
 * How long the overlay device may hold a segment back to join it with the next one. Short compared with the round-trip
 * time of a lane.
 */
export const OVERLAY_HOLD_MICROSECONDS = 100

// The intervals of the route agent's loops, and how their rounds are counted.

export const LOOP_TIMING: LoopInit = { ...DEFAULT_LOOP, minMs: MIN_INTERVAL_MS, resyncMs: RESYNC_MS }

interface LoopParts {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
}

/** `loop` is the name in metrics and log lines. */
export function loopDeps({ clock, logger, metrics }: LoopParts, loop: string): LoopDeps {
  return reportedLoop({
    clock,
    logger,
    loop,
    count: ({ ok, ms }) => {
      metrics.runs.inc({ loop, result: ok ? 'ok' : 'failed' })
      metrics.runSeconds.observe(ms / 1000, { loop })
    },
  })
}
