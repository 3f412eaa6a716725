/**
 * The routes over the lanes. A whole round applies them, and between rounds their own loop changes them as soon as a
 * link becomes silent or narrower.
 */
import { type Round, applyRouting } from '../../kernel/apply/apply.ts'
import { DEFAULT_LOOP, type LoopInit, ReconcileLoop, SerialQueue } from '../../reconcile/reconcile.ts'
import { carryingText } from '../health/health.ts'
import type { LanePlan } from '../links/links.ts'
import { type GatewayDeps, type GatewayWorld, loopDeps } from '../world/world.ts'
import { laneScope, planLaneRoutes } from './plan-lane-routes.ts'

/** If one step fails, the others still run. A lane that goes down must not stay routed for longer than this. */
export const LANE_LOOP_TIMING: LoopInit = { ...DEFAULT_LOOP, retryMaxMs: 1000 }

/** Other programs and these loops change routes and links in bursts. */
export const KERNEL_SETTLE_MS = 200

export interface LaneRoutesInit {
  readonly newRound: () => Round
  /**
   * The world with what changes quickly: which links answer, and which clusters other gateways reach. Undefined before
   * the first plan, when no link has been probed.
   */
  readonly asOfNow: (world: GatewayWorld) => GatewayWorld | undefined
  /** Called if a route could not be changed: a whole round does it again. */
  readonly onFailure: () => void
}

/** What the routes in the kernel were planned from. */
interface RoutedFrom {
  readonly world: GatewayWorld
  readonly lanes: readonly LanePlan[]
}

export class LaneRoutes {
  readonly #deps: GatewayDeps
  readonly #init: LaneRoutesInit
  readonly #loop: ReconcileLoop
  readonly #changes = new SerialQueue()
  /** Undefined until a round applies routes. */
  #from: RoutedFrom | undefined
  /** Until then, kernel notifications may come from the changes of #update(). Monotonic milliseconds. */
  #ownChangesUntilMs = -Infinity

  constructor(deps: GatewayDeps, init: LaneRoutesInit) {
    this.#deps = deps
    this.#init = init
    this.#loop = new ReconcileLoop(loopDeps(deps, 'routes'), LANE_LOOP_TIMING, (signal) => this.#update(signal))
  }

  poke(): void {
    this.#loop.poke()
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  /** This node is about to leave and has withdrawn its routes. */
  get withdrawn(): boolean {
    return this.#from?.world.withdrawn === true
  }

  /** A kernel notification of now may come from the changes that a silent link caused. */
  get isChanging(): boolean {
    return this.#deps.clock.monotonic() < this.#ownChangesUntilMs
  }

  /** For a whole round: applies the routes over these lanes, whose devices exist. Throws if the signal is aborted. */
  async apply(world: GatewayWorld, lanes: readonly LanePlan[], round: Round, signal: AbortSignal): Promise<void> {
    await this.#changes.run(async () => {
      // Links that became silent since the world was read have been removed from the routes and must not return.
      this.#from = { world: this.#init.asOfNow(world) ?? world, lanes }
      await this.#write(this.#from, round, signal)
    })
  }

  /**
   * Removes a link that became silent from the routes of its cluster, and lowers the MTU of routes over a link that no
   * longer carries large packets, even while a round is under way. A whole round takes some hundred milliseconds, in
   * which packets would be lost. If this fails, the round does it again.
   */
  async #update(signal: AbortSignal): Promise<void> {
    await this.#changes.run(async () => {
      if (this.#from === undefined) return
      const { world, lanes } = this.#from
      const now = this.#init.asOfNow(world)
      if (now === undefined || carryingText(world) === carryingText(now)) return
      const round = this.#init.newRound()
      this.#ownChangesUntilMs = Infinity
      try {
        await this.#write({ world: now, lanes }, round, signal)
      } finally {
        this.#ownChangesUntilMs = this.#deps.clock.monotonic() + KERNEL_SETTLE_MS
      }
      if (round.failures === 0) this.#from = { world: now, lanes }
      else this.#init.onFailure()
    })
  }

  #write({ world, lanes }: RoutedFrom, round: Round, signal: AbortSignal): Promise<void> {
    return applyRouting(this.#deps.routes, planLaneRoutes(world, lanes), laneScope(this.#deps), round, signal)
  }
}
