/**
 * The drain of a node that is about to leave: it announces this in its Endpoint, and withdraws its routes after all
 * others had time to learn it.
 *
 *   staying ─ leaving ─► leaving ─ its Endpoint is written, 1.5 s ─► withdrawn
 *                          └────── it cannot be written, 30 s ────────┘
 *
 * A node that stays after all goes back to the start from both. A process may be at any step of this before it has a
 * plan, or while it returns (lane-phase.ts), so this is a state of its own.
 */
import { CONDITION_DRAINED, isConditionTrue } from '../../model/model.ts'
import { leavingNodes } from '../health/health.ts'
import type { GatewayDeps, GatewayWorld } from '../world/world.ts'
import { isLeaving, readMembership } from './read-world.ts'

/** The other gateways and the nodes react to a published Endpoint within some hundred milliseconds. */
const WITHDRAW_AFTER_MS = 1500
/** An unavailable API server must not delay the drain without limit. */
const WITHDRAW_UNHEARD_MS = 30_000

/** The times are of the monotonic clock. */
type Drain =
  | { readonly is: 'staying' }
  | {
      readonly is: 'leaving' | 'withdrawn'
      readonly sinceMs: number
      /** Since when the node's Endpoint announces it. Undefined if it does not. */
      readonly announcedSinceMs: number | undefined
      /** When the routes are or were withdrawn. */
      readonly withdrawsAtMs: number
    }

interface DrainFacts {
  readonly leaving: boolean
  /** The node's Endpoint announces the drain in the API. */
  readonly announced: boolean
  readonly nowMs: number
  /** When a drain began that is seen now for the first time. */
  readonly sinceMs: number
}

export type DepartureDeps = Pick<GatewayDeps, 'api' | 'clock' | 'handover'>

export interface DepartureInit {
  readonly node: string
  /** Requests a round at that time of the monotonic clock. */
  readonly wakeAt: (ms: number) => void
}

export class Departure {
  readonly #deps: DepartureDeps
  readonly #init: DepartureInit
  #drain: Drain = { is: 'staying' }

  constructor(deps: DepartureDeps, init: DepartureInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Whether this node leaves now. `isFirst`: this process has not planned anything before. */
  look(isFirst: boolean): Required<Pick<GatewayWorld, 'leaving' | 'withdrawn'>> {
    const { api, clock, handover } = this.#deps
    const { node, wakeAt } = this.#init
    const nowMs = clock.monotonic()
    const leaving = handover?.leaving() ?? isLeaving(api, node)
    const sinceMs = isFirst ? this.#sinceAtStart(nowMs) : nowMs
    const announced = leaving && this.#isAnnounced()
    this.#drain = nextDrain(this.#drain, { leaving, announced, nowMs, sinceMs })
    if (this.#drain.is === 'leaving') wakeAt(this.#drain.withdrawsAtMs)
    return { leaving, withdrawn: this.#drain.is === 'withdrawn' }
  }

  #isAnnounced(): boolean {
    const { api } = this.#deps
    const cluster = readMembership(api)?.spec.clusterId
    return cluster !== undefined && leavingNodes(cluster, api.cache('Endpoint').list()).has(this.#init.node)
  }

  /** Now, except for a process that was restarted on a drained node: that node has withdrawn its routes long ago. */
  #sinceAtStart(nowMs: number): number {
    const { status } = this.#deps.api.cache('Gateway').get(this.#init.node) ?? {}
    return isConditionTrue(status?.conditions, CONDITION_DRAINED) ? nowMs - WITHDRAW_AFTER_MS : nowMs
  }
}

function nextDrain(drain: Drain, facts: DrainFacts): Drain {
  if (!facts.leaving) return { is: 'staying' }
  const before = drain.is === 'staying' ? undefined : drain
  const sinceMs = before?.sinceMs ?? facts.sinceMs
  // On a busy node it may take a while until the Endpoint is written.
  const announcedSinceMs = facts.announced ? (before?.announcedSinceMs ?? facts.sinceMs) : undefined
  const withdrawsAtMs = Math.min((announcedSinceMs ?? Infinity) + WITHDRAW_AFTER_MS, sinceMs + WITHDRAW_UNHEARD_MS)
  const is = facts.nowMs < withdrawsAtMs ? 'leaving' : 'withdrawn'
  return { is, sinceMs, announcedSinceMs, withdrawsAtMs }
}
