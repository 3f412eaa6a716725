/**
 * What causes a round of the lane loop before its periodic one, and how soon: a change of an object, of the kernel or
 * of a link, and a time that a part of the gateway waits for.
 */
import { reportedOtherRanges } from '../../model/addresses/addresses.ts'
import { type ReconcileLoop, WakeTimer } from '../../reconcile/reconcile.ts'
import type { GatewayDeps } from '../world/world.ts'
import { KERNEL_SETTLE_MS, type LaneRoutes } from './lane-routes.ts'
import { GATEWAY_KINDS } from './read-world.ts'

/** A round uses more CPU time than a change of routes and would delay it, for one link and for the next one. */
const AFTER_ROUTES_MS = 150
/** A suspect link changes little but the routes, and the kernel's notification of that change needs no quick round. */
const AFTER_SUSPECT_MS = 1000

/** Each pod may change the ranges of its node. Traffic to unknown ranges is tracked, which does no harm. */
const RANGES_SETTLE_MS = 1000

export interface RoundRequestsInit {
  readonly loop: Pick<ReconcileLoop, 'poke'>
  readonly routes: Pick<LaneRoutes, 'poke' | 'isChanging'>
  /** See PlanApplier.followTables(). */
  readonly followTables: (changed: () => void) => () => void
}

export class RoundRequests {
  readonly #deps: GatewayDeps
  readonly #init: RoundRequestsInit
  readonly #wake: WakeTimer

  constructor(deps: GatewayDeps, init: RoundRequestsInit) {
    this.#deps = deps
    this.#init = init
    this.#wake = new WakeTimer(deps.clock, () => this.poke())
  }

  /** Changes the routes and runs a round at once. */
  poke(): void {
    this.#init.routes.poke()
    this.#init.loop.poke()
  }

  /** As poke(), at that time of the monotonic clock, or earlier if an earlier time is already requested. */
  wakeAt(ms: number): void {
    this.#wake.at(ms)
  }

  /** The routes change at once, and everything else later. */
  linksChanged(what: 'state' | 'suspect'): void {
    this.#init.routes.poke()
    this.#wakeIn(what === 'state' ? AFTER_ROUTES_MS : AFTER_SUSPECT_MS)
  }

  /** Watches what the plan depends on: each change requests a round. Returns the function that ends this. */
  follow(): () => void {
    const { api, routes, handover } = this.#deps
    const poke = (): void => this.poke()
    const stops = [
      ...GATEWAY_KINDS.map((kind) => api.cache(kind).onChange(poke)),
      api.cache('RouteAgent').onChange((change) => {
        if (reportedOtherRanges(change)) this.#wakeIn(RANGES_SETTLE_MS)
      }),
      routes.onChange(() => this.#wakeIn(this.#init.routes.isChanging ? AFTER_SUSPECT_MS : KERNEL_SETTLE_MS)),
      this.#init.followTables(poke),
      ...(handover === undefined ? [] : [handover.onChange(poke)]),
      () => this.#wake.close(),
    ]
    return () => stops.forEach((stop) => stop())
  }

  #wakeIn(ms: number): void {
    this.#wake.at(this.#deps.clock.monotonic() + ms)
  }
}
