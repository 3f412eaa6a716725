/** Makes this node's kernel equal to the plan: policy, devices, forwarding, routes, in the order that is safe. */
import { type Round, applyGuard } from '../../kernel/apply/apply.ts'
import { ensureForwarding } from '../../kernel/tuning/tuning.ts'
import type { Family } from '../../model/addresses/addresses.ts'
import { SerialQueue } from '../../reconcile/reconcile.ts'
import type { LaneState } from '../cable/cable.ts'
import { GatewayTable } from '../nft/nft.ts'
import type { CallHistory } from '../reach/reach.ts'
import { type GatewayConfig, type GatewayDeps, type GatewayWorld, forwarding } from '../world/world.ts'
import type { LaneRoutes } from './lane-routes.ts'
import { LANE_GUARD } from './plan-lane-guard.ts'
import type { GatewayPlan } from './plan-gateway.ts'

/** What a round has applied to the kernel. */
interface Applied {
  /** States of the existing devices, by remote lane. */
  readonly states: ReadonlyMap<number, LaneState>
  /** The policy and the routes are in place. */
  readonly routed: boolean
  /** Links, by linkKey(), that were called again. */
  readonly called: ReadonlySet<string>
}

export interface PlanApplierInit {
  readonly config: GatewayConfig
  readonly calls: Pick<CallHistory, 'due'>
  readonly routes: Pick<LaneRoutes, 'apply'>
}

export class PlanApplier {
  readonly #deps: GatewayDeps
  readonly #init: PlanApplierInit
  readonly #nft: GatewayTable
  readonly #nft6: GatewayTable
  readonly #tables = new SerialQueue()
  /** The plan of the tables. Undefined before the first. */
  #planned: Pick<GatewayPlan, 'nft' | 'nft6'> | undefined

  constructor(deps: GatewayDeps, init: PlanApplierInit) {
    this.#deps = deps
    this.#init = init
    this.#nft = new GatewayTable(deps.nft, deps.clock)
    this.#nft6 = new GatewayTable(deps.nft6, deps.clock)
  }

  /** Calls `changed` when another program may have changed a table, which the next apply() checks. Returns its end. */
  followTables(changed: () => void): () => void {
    const stops = [this.#nft, this.#nft6].map((table) => table.follow(this.#deps.logger, changed))
    return () => stops.forEach((stop) => stop())
  }

  /**
   * The policy is in place before the first device, so that no packet passes a lane untranslated or unchecked. If the
   * policy cannot be applied, or the rules that hold if its table is lost, no device is created; an existing device was created under a policy. A lane that is to be
   * removed stays under the policy until it is gone, and is removed after its routes: with a device the kernel deletes
   * every IPv4 route that has a next hop on it, including those that also use other lanes.
   */
  async apply(world: GatewayWorld, plan: GatewayPlan, round: Round, signal: AbortSignal): Promise<Applied> {
    const { cable } = this.#deps
    const { calls, routes } = this.#init
    const { lanes } = plan.lanes
    const withIpv6 = plan.nft6.length > 0
    const hasTables = await this.#tables.run(() => this.#applyTables((this.#planned = plan), round, signal))
    const guard = await applyGuard(this.#deps.routes, plan.guard, LANE_GUARD, round, signal)
    const guarded = hasTables && guard.complete
    const callAgain = calls.due(lanes)
    const { pathSource } = world
    const states = new Map<number, LaneState>()
    for (const lane of lanes) {
      const seen = world.laneStates.get(lane.remoteLane)
      if (seen === undefined && !guarded) continue
      const init = { withIpv6, seen, callAgain, pathSource, mayJoin: guarded, round, signal }
      const state = await cable.apply(lane, init)
      if (state !== undefined) states.set(lane.remoteLane, state)
    }
    if (states.size > 0) await this.#switchOnForwarding(withIpv6 ? [4, 6] : [4], round)
    const failures = round.failures
    if (states.size > 0 || lanes.length === 0) {
      const made = lanes.filter(({ remoteLane }) => states.has(remoteLane))
      await routes.apply(world, made, round, signal)
    }
    const routed = guarded && round.failures === failures
    const keep = lanes.map((lane) => lane.device)
    const swept = await cable.remove(keep, round, signal)
    // The IPv6 table is removed last, because until here lanes may still have carried IPv6.
    if (swept) await guard.removeOthers()
    if (swept && !withIpv6) await this.#nft6.remove(round, signal)
    return { states, routed, called: callAgain }
  }

  /**
   * For a moment between rounds at which another program has changed a table: a round reads much more before it comes to
   * them. Failures are in the round.
   */
  async restoreTables(round: Round, signal: AbortSignal): Promise<void> {
    await this.#tables.run(async () => {
      if (this.#planned !== undefined) await this.#applyTables(this.#planned, round, signal)
    })
  }

  async #applyTables(
    { nft, nft6 }: Pick<GatewayPlan, 'nft' | 'nft6'>,
    round: Round,
    signal: AbortSignal,
  ): Promise<boolean> {
    const done = await Promise.all([
      this.#nft.apply(nft, round, signal),
      nft6.length === 0 || this.#nft6.apply(nft6, round, signal),
    ])
    return done.every((one) => one)
  }

  async #switchOnForwarding(families: readonly Family[], round: Round): Promise<void> {
    const { sysctl, logger } = this.#deps
    for (const family of families) {
      const { name, setting, marker } = forwarding(this.#init.config, family)
      const on = await round.attempt(() => ensureForwarding(sysctl, marker, setting))
      if (on?.value === true) logger.info(`enabled ${name} forwarding`)
    }
  }
}
