/** The probers of all lanes of this node: started, kept and stopped as the plan has it. */
import type { ConnectionState } from '../../model/objects.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { messageOf } from '../../runtime/thrown.ts'
import type { GatewayConfig } from '../config.ts'
import type { GatewayMetrics } from '../metrics.ts'
import type { LanePlan } from '../cable/plan-lanes.ts'
import { LaneProber, type MeasuredHealth } from './probe-loop.ts'
import type { OpenProbeSocket } from './probe-socket.ts'
import { healthKey } from '../world.ts'

export interface ProbingDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: GatewayMetrics
  readonly openSocket: OpenProbeSocket
  /** Called at once on each change of state. */
  readonly onTransition: () => void
}

interface RunningProber {
  readonly prober: LaneProber
  readonly stop: () => void
}

export class Probing {
  readonly #deps: ProbingDeps
  readonly #config: GatewayConfig
  readonly #probers = new Map<number, RunningProber>()

  constructor(deps: ProbingDeps, config: GatewayConfig) {
    this.#deps = deps
    this.#config = config
  }

  /** Lanes and peers from now on. Those that stay keep their state; new ones in `up`, by healthKey(), start as up. */
  setLanes(lanes: readonly LanePlan[], up: ReadonlySet<string>): void {
    for (const [lane, running] of this.#probers) {
      const plan = lanes.find((candidate) => candidate.lane === lane)
      if (plan === undefined || laneAddressOf(plan) !== running.prober.address) this.#stop(lane)
    }
    for (const plan of lanes) {
      const running = this.#probers.get(plan.lane) ?? this.#start(plan)
      const clusters = plan.links.map((link) => link.cluster)
      running.prober.setPeers(plan.links, new Set(clusters.filter((id) => up.has(healthKey(plan.lane, id)))))
    }
  }

  /** What is known of each peer, by healthKey(). */
  health(): Map<string, MeasuredHealth> {
    return new Map(
      [...this.#probers].flatMap(([lane, { prober }]) =>
        [...prober.health()].map(([cluster, view]) => [healthKey(lane, cluster), view] as const),
      ),
    )
  }

  /** Why some lane cannot be probed, in words; undefined where all can. */
  problem(): string | undefined {
    const problems = [...this.#probers.values()].flatMap(({ prober }) => prober.problem ?? [])
    return problems.length === 0 ? undefined : problems.join('; ')
  }

  close(): void {
    for (const lane of [...this.#probers.keys()]) this.#stop(lane)
  }

  #start(plan: LanePlan): RunningProber {
    const { lane } = plan
    const { clock, logger, metrics, openSocket } = this.#deps
    const onTransition = (cluster: string, from: ConnectionState, to: ConnectionState): void => {
      logger.info('connection changed', { cluster, lane, from, to })
      metrics.transitions.inc({ cluster, lane: String(lane), state: to })
      this.#deps.onTransition()
    }
    const { probeIntervalMs, missesUntilDown, answersUntilUp } = this.#config
    const prober = new LaneProber(
      { clock, logger, metrics, openSocket, onTransition },
      { lane, address: laneAddressOf(plan), intervalMs: probeIntervalMs, missesUntilDown, answersUntilUp },
    )
    const stopping = new AbortController()
    prober.run(stopping.signal).catch((error: unknown) => {
      logger.error('probing stopped', { lane, reason: 'RoundFailed', why: messageOf(error) })
    })
    const running = { prober, stop: () => stopping.abort() }
    this.#probers.set(lane, running)
    return running
  }

  #stop(lane: number): void {
    this.#probers.get(lane)?.stop()
    this.#probers.delete(lane)
  }
}

function laneAddressOf(plan: LanePlan): string {
  return plan.address.replace('/32', '')
}
