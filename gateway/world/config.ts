/**
 * Configuration of the gateway of one node, with defaults. compose/site/gateway.ts fills it from site.yaml and flags.
 */
import { join } from 'node:path'
import { type Family, type OpenPort, parseAddress } from '../../model/addresses/addresses.ts'
import {
  type CalledAt,
  HEARTBEAT_BOUNDS,
  HEARTBEAT_MS,
  MAX_LANE,
  firstPortProblem,
  isLaneNumber,
  publicAddressProblem,
} from '../../model/lanes/lanes.ts'
import { IPV6_FORWARDING, IP_FORWARDING, lanePort } from '../../model/model.ts'

export interface GatewayLaneConfig {
  readonly lane: number
  /**
   * UDP port on which WireGuard listens for gateways of the same number in other clusters. The ports for other numbers
   * differ from it by the difference of the numbers: linkPort().
   */
  readonly port: number
  /**
   * Address or DNS name at which others reach this node, if it is not an address of the node (port forwarding, 1:1
   * NAT).
   */
  readonly publicAddress?: string
  /** CalledAt.publicPort: the port outside for gateways of number 0. Absent: `port` is the port outside too. */
  readonly publicPort?: number
  /** The gateway offers to relay, if it can be called from outside. Absent: it does not. */
  readonly relay?: true
  /** The gateway asks no router for ports outside. Absent: it does if it cannot be called (planPortMapping()). */
  readonly portMapping?: false
}

export interface GatewayConfig {
  readonly node: string
  /** Sealane's version, reported in Gateway.status. */
  readonly version: string
  /** At most one, because a node has one lane number. Empty for a node that is to be cleaned. */
  readonly lanes: readonly GatewayLaneConfig[]
  /** This node's private directory, created with mode 0700. Holds lane<k>.key. */
  readonly stateDir: string
  /** The address from which the broker saw this site. If it is not an address of this node, the node is behind NAT. */
  readonly observedAddress?: string
  /** Ports of this node that pods of other clusters may call. */
  readonly openPorts: readonly OpenPort[]
  /** Whether routing drops what comes out of a lane while this node has no access rules. Default: false. */
  readonly failClosed?: boolean
  /** Interval between two probes over a link that carries traffic, or whose state is not known yet. */
  readonly probeIntervalMs: number
  /** Interval between two probes over an idle link. */
  readonly idleProbeIntervalMs: number
  /** Shortest wait for the answer to a probe before it counts as missed and is sent again. */
  readonly quickProbeMs: number
  /** Missed probes in a row after which traffic uses other links, if there are others. */
  readonly missesUntilSuspect: number
  /** Silence after which such a connection counts as down. */
  readonly downAfterMs: number
  /** Silence after which traffic policies send new connections to other clusters, although it is not down yet. */
  readonly unansweredAfterMs: number
  /** How long such a connection has to answer until new connections come back. */
  readonly calmAfterMs: number
  /** Answers in a row after which a connection that was down counts as up. */
  readonly answersUntilUp: number
  /** How long one candidate address is tried before the next one. */
  readonly rotateMs: number
  /** Age at which a key is replaced. 0: never because of its age. */
  readonly keyMaxAgeMs: number
  /**
   * A link that carried nothing for this long sleeps. 0: none does. Absent: after 10 minutes, in clustersets with more
   * than 50 members (sleepRule()).
   */
  readonly sleepAfterMs?: number
  /** Gateway.status is written at once when a connection changes its state, and otherwise at most this often. */
  readonly statusMs: number
  /** Gateway.status is written at least this often. All components of a cluster use the same value. */
  readonly heartbeatMs: number
}

/** The fields without a default are required. */
export type GatewayConfigInit = Pick<GatewayConfig, 'node' | 'version' | 'stateDir'> &
  Partial<Omit<GatewayConfig, 'lanes'>> & {
    readonly lanes: readonly (CalledAt & { readonly lane: number; readonly port?: number })[]
  }

export const GATEWAY_DEFAULTS = {
  probeIntervalMs: 200,
  idleProbeIntervalMs: 1000,
  quickProbeMs: 50,
  missesUntilSuspect: 4,
  downAfterMs: 1500,
  unansweredAfterMs: 600,
  calmAfterMs: 3000,
  answersUntilUp: 2,
  rotateMs: 5000,
  keyMaxAgeMs: 30 * 24 * 3_600_000,
  statusMs: 2000,
  heartbeatMs: HEARTBEAT_MS,
  openPorts: [],
} as const

export class GatewayConfigError extends Error {
  constructor(field: string, value: unknown, expected: string) {
    super(`gateway ${field} ${JSON.stringify(value)}: expected ${expected}`)
    this.name = 'GatewayConfigError'
  }
}

export interface Forwarding {
  /** Name of the family in the log. */
  readonly name: 'IP' | 'IPv6'
  /** The sysctl of the kernel. */
  readonly setting: string
  /** File of ensureForwarding() that records that the gateway switched forwarding on. */
  readonly marker: string
}

export function forwarding({ stateDir }: Pick<GatewayConfig, 'stateDir'>, family: Family): Forwarding {
  const marker = join(stateDir, 'gateway-switched-on-forwarding')
  return family === 4
    ? { name: 'IP', setting: IP_FORWARDING, marker }
    : { name: 'IPv6', setting: IPV6_FORWARDING, marker }
}

/**
 * Fills in the defaults. Throws GatewayConfigError or InvalidAddressError with the field, its value and what is
 * expected.
 */
export function gatewayConfig(init: GatewayConfigInit): GatewayConfig {
  if (init.lanes.length > 1)
    throw new GatewayConfigError(
      'lanes',
      init.lanes.map(({ lane }) => lane),
      ONE_LANE,
    )
  const lanes = init.lanes.map(({ listenPort, ...lane }) => {
    if (listenPort !== undefined) checkFirstPort(`listenPort of lane ${lane.lane}`, listenPort, 'listen')
    return { port: lanePort(lane.lane, listenPort), ...lane }
  })
  lanes.forEach(checkLane)
  if (init.observedAddress !== undefined) parseAddress(init.observedAddress, 'gateway observedAddress')
  const config: GatewayConfig = { ...GATEWAY_DEFAULTS, ...init, lanes }
  for (const field of WHOLE_NUMBERS) {
    if (!(Number.isInteger(config[field]) && config[field] > 0)) {
      throw new GatewayConfigError(field, config[field], 'a whole number above 0')
    }
  }
  if (!(Number.isInteger(config.keyMaxAgeMs) && config.keyMaxAgeMs >= 0))
    throw new GatewayConfigError('keyMaxAgeMs', config.keyMaxAgeMs, 'a whole number, or 0')
  const { sleepAfterMs = 0 } = config
  if (!(Number.isInteger(sleepAfterMs) && sleepAfterMs >= 0))
    throw new GatewayConfigError('sleepAfterMs', sleepAfterMs, 'a whole number, or 0')
  checkHeartbeat(config.heartbeatMs)
  return config
}

function checkHeartbeat(ms: number): void {
  const { minMs, maxMs } = HEARTBEAT_BOUNDS
  if (Number.isInteger(ms) && ms >= minMs && ms <= maxMs) return
  throw new GatewayConfigError('heartbeatMs', ms, `a whole number from ${minMs} to ${maxMs}`)
}

const WHOLE_NUMBERS = [
  'probeIntervalMs',
  'idleProbeIntervalMs',
  'quickProbeMs',
  'missesUntilSuspect',
  'downAfterMs',
  'unansweredAfterMs',
  'calmAfterMs',
  'answersUntilUp',
  'rotateMs',
  'statusMs',
] as const

const ONE_LANE = 'one lane for this node: one lane links it with all remote gateways'

function checkLane(lane: GatewayLaneConfig): void {
  if (!isLaneNumber(lane.lane)) {
    throw new GatewayConfigError('lane', lane.lane, `a number from 0 to ${MAX_LANE}`)
  }
  // The ports for the other lane numbers lie around this one.
  const [lowest, highest] = [1 + lane.lane, 0xffff - MAX_LANE + lane.lane]
  if (!Number.isInteger(lane.port) || lane.port < lowest || lane.port > highest) {
    throw new GatewayConfigError(`port of lane ${lane.lane}`, lane.port, `a number from ${lowest} to ${highest}`)
  }
  if (lane.publicAddress !== undefined) checkPublicAddress(lane.lane, lane.publicAddress)
  if (lane.publicPort !== undefined) checkFirstPort(`publicPort of lane ${lane.lane}`, lane.publicPort, 'public')
}

/** Refuses an address that the other clusters would not call, because the operator can correct it here. */
function checkPublicAddress(lane: number, text: string): void {
  if (publicAddressProblem(text) === undefined) return
  const expected = 'an IPv4 address, or a DNS name, at which other sites reach this node'
  throw new GatewayConfigError(`publicAddress of lane ${lane}`, text, expected)
}

function checkFirstPort(field: string, port: number, side: 'public' | 'listen'): void {
  const problem = firstPortProblem(port, side)
  if (problem !== undefined) throw new GatewayConfigError(field, port, problem.replace(/^expected /, ''))
}
