/** The prober of this node's lane: started, kept and stopped as the plan has it. */
import type { ConnectionState } from '../../model/objects.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { messageOf } from '../../runtime/thrown.ts'
import type { GatewayConfig } from '../config.ts'
import { type GatewayMetrics, laneLabels } from '../metrics.ts'
import type { LanePlan } from '../cable/plan-lanes.ts'
import { LaneProber, type MeasuredHealth, type ProbedPeer } from './probe-loop.ts'
import type { OpenProbeSocket } from './probe-socket.ts'

export interface ProbingDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: GatewayMetrics
  readonly openSocket: OpenProbeSocket
  /** Called at once on each change of state. */
  readonly onTransition: () => void
}

interface RunningProber {
  readonly lane: number
  readonly prober: LaneProber
  readonly stop: () => void
}

export class Probing {
  readonly #deps: ProbingDeps
  readonly #config: GatewayConfig
  #running: RunningProber | undefined

  constructor(deps: ProbingDeps, config: GatewayConfig) {
    this.#deps = deps
    this.#config = config
  }

  /**
   * The devices from now on, which are all of one lane. Far ends that stay keep their state; new ones in `up`, by
   * healthKey(), start as up.
   */
  setLanes(devices: readonly LanePlan[], up: ReadonlySet<string>): void {
    const [device] = devices
    const address = device === undefined ? undefined : laneAddressOf(device)
    const isSame = this.#running?.lane === device?.ownLane && this.#running?.prober.address === address
    if (!isSame) this.close()
    if (device === undefined) return
    this.#running ??= this.#start(device)
    this.#running.prober.setPeers(
      devices.flatMap(({ links }) => links),
      up,
    )
  }

  /** What is known of each far end, by healthKey(). */
  health(): Map<string, MeasuredHealth> {
    return this.#running?.prober.health() ?? new Map<string, MeasuredHealth>()
  }

  /** Why the lane cannot be probed, in words; undefined where it can. */
  problem(): string | undefined {
    return this.#running?.prober.problem
  }

  close(): void {
    this.#running?.stop()
    this.#running = undefined
  }

  #start(device: LanePlan): RunningProber {
    const { ownLane: lane } = device
    const { clock, logger, metrics, openSocket } = this.#deps
    const onTransition = (peer: ProbedPeer, from: ConnectionState, to: ConnectionState): void => {
      const { cluster, remoteLane } = peer
      logger.info('connection changed', { cluster, lane, remoteLane, from, to })
      metrics.transitions.inc({ cluster, ...laneLabels({ ownLane: lane, remoteLane }), state: to })
      this.#deps.onTransition()
    }
    const { probeIntervalMs, missesUntilDown, answersUntilUp } = this.#config
    const prober = new LaneProber(
      { clock, logger, metrics, openSocket, onTransition },
      { lane, address: laneAddressOf(device), intervalMs: probeIntervalMs, missesUntilDown, answersUntilUp },
    )
    const stopping = new AbortController()
    prober.run(stopping.signal).catch((error: unknown) => {
      logger.error('probing stopped', { lane, reason: 'RoundFailed', why: messageOf(error) })
    })
    return { lane, prober, stop: () => stopping.abort() }
  }
}

function laneAddressOf({ address }: LanePlan): string {
  return address.replace('/32', '')
}
