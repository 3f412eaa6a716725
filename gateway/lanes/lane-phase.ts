/**
 * How far this process has come: it has no plan yet, it returns after a restart, or it serves.
 *
 *   starting ─ first plan ──────────────────────────────────► serving
 *      └────── first plan; the last process withdrew ─► returning ─ all links are up, or RETURN_MS is over ─┘
 *
 * Whether the node is about to leave is independent of this (departure.ts): a process that is restarted on a drained
 * node returns and leaves at the same time.
 */
import type { Endpoint } from '../../model/model.ts'
import { CAPABILITY_DRAINING } from '../../model/lanes/lanes.ts'
import { handedOverHealth } from '../health/health.ts'
import type { LanePlan } from '../links/links.ts'
import { type GatewayDeps, type GatewayWorld, healthKey } from '../world/world.ts'
import { ownEndpoints } from './endpoint-writer.ts'
import type { GatewayPlan } from './plan-gateway.ts'

/** Longest wait, because a far end may never come back. */
const RETURN_MS = 10_000

interface Planned {
  /** The plan of the last round. */
  readonly plan: GatewayPlan
  /** Connections, by healthKey(), that were up when the routes were last applied. */
  readonly routed: ReadonlySet<string>
}

export type LanePhase =
  | {
      readonly is: 'starting'
      /** When the return ends that begins with the first plan. Undefined if this process does not return. */
      readonly returnsUntilMs: number | undefined
    }
  | ({
      /**
       * The previous process had withdrawn its routes, and its lanes ended with it. This one keeps announcing that it
       * leaves until its links are up. The last reported state of the links is no longer true, and a peer that used it
       * to return to this gateway would lose its packets.
       */
      readonly is: 'returning'
      /** When it ends at the latest, on the monotonic clock. */
      readonly untilMs: number
    } & Planned)
  | ({ readonly is: 'serving' } & Planned)

export type LanePhaseDeps = Pick<GatewayDeps, 'api' | 'cable'>

export class LanePhases {
  readonly #deps: LanePhaseDeps
  #now: LanePhase = { is: 'starting', returnsUntilMs: undefined }

  constructor(deps: LanePhaseDeps) {
    this.#deps = deps
  }

  /** The plan of the last round. Undefined before the first. */
  get plan(): GatewayPlan | undefined {
    return this.#now.is === 'starting' ? undefined : this.#now.plan
  }

  /** Connections, by healthKey(), that were up when the routes were last applied. */
  get routed(): ReadonlySet<string> {
    return this.#now.is === 'starting' ? new Set() : this.#now.routed
  }

  /** Why the lanes are not ready. Undefined if they are. */
  get notReady(): string | undefined {
    switch (this.#now.is) {
      case 'starting':
        return 'the Cluster object of this cluster does not exist yet'
      case 'returning':
        // Kubernetes stops the next gateway once this one is ready.
        return 'restarted: not all of its links are up yet'
      case 'serving':
        return undefined
    }
  }

  /** The world that a round plans from, with what depends on the phase. Call it in every round, before planning. */
  look(read: GatewayWorld): GatewayWorld {
    const isFirst = this.#now.is === 'starting'
    const world = isFirst ? this.#withHandedOver(read) : read
    this.#become(isFirst ? startOf(world, this.#published(world)) : looked(this.#now, world))
    return this.returnsUntilMs === undefined ? world : { ...world, returning: true }
  }

  /** When the return ends at the latest, on the monotonic clock. Undefined if this process does not return. */
  get returnsUntilMs(): number | undefined {
    if (this.#now.is === 'starting') return this.#now.returnsUntilMs
    return this.#now.is === 'returning' ? this.#now.untilMs : undefined
  }

  /** A round has applied this plan, from a world in which these connections, by healthKey(), were up. */
  planned(plan: GatewayPlan, up: ReadonlySet<string>): void {
    this.#become(this.#now.is === 'starting' ? started(this.#now, { plan, routed: up }) : { ...this.#now, plan })
  }

  /** The policy and the routes of the last plan are in place, with these connections, by healthKey(), up. */
  routesApplied(up: ReadonlySet<string>): void {
    if (this.#now.is !== 'starting') this.#become({ ...this.#now, routed: up })
  }

  #become(phase: LanePhase): void {
    this.#now = phase
  }

  /** In the first round nothing has been probed yet, so the state that the last process reported is used. */
  #withHandedOver(world: GatewayWorld): GatewayWorld {
    const { api, cable } = this.#deps
    const gateway = api.cache('Gateway').get(world.node)
    return { ...world, health: handedOverHealth({ ...world, gateway, rules: cable.rules }) }
  }

  /** What the last process published about this node's lanes. */
  #published({ own, node }: GatewayWorld): readonly Endpoint[] {
    return ownEndpoints(this.#deps, own.spec.id, node)
  }
}

/** A first round that fails is repeated, and the time of the return begins with the one that succeeds. */
function startOf({ monotonicMs, endpoints }: GatewayWorld, published: readonly Endpoint[]): LanePhase {
  const isDraining = published.some(({ spec }) => spec.capabilities.includes(CAPABILITY_DRAINING))
  const returns = isDraining && endpoints.length > 0
  return { is: 'starting', returnsUntilMs: returns ? monotonicMs + RETURN_MS : undefined }
}

function started({ returnsUntilMs }: LanePhase & { readonly is: 'starting' }, planned: Planned): LanePhase {
  if (returnsUntilMs === undefined) return { is: 'serving', ...planned }
  return { is: 'returning', untilMs: returnsUntilMs, ...planned }
}

function looked(phase: LanePhase, world: GatewayWorld): LanePhase {
  if (phase.is !== 'returning') return phase
  const { plan, routed, untilMs } = phase
  const isAlone = world.endpoints.length === 0
  const isDone = isAlone || world.monotonicMs >= untilMs || plan.lanes.lanes.every(isUp(upKeys(world)))
  return isDone ? { is: 'serving', plan, routed } : phase
}

function isUp(up: ReadonlySet<string>): (lane: LanePlan) => boolean {
  return ({ remoteLane, links }) => links.every(({ cluster }) => up.has(healthKey(remoteLane, cluster)))
}

/** Links, by healthKey(), that are up. */
export function upKeys(world: GatewayWorld): Set<string> {
  return new Set([...world.health].filter(([, view]) => view.state === 'up').map(([key]) => key))
}
