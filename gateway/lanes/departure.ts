/**
 * The drain of a node that is about to leave: it announces this in its Endpoint, and withdraws its routes after all
 * others had time to learn it.
 *
 *   stays ─ leaving ─► announces ─ its Endpoint is written, 1.5 s ─► withdrawn
 *                          └────── it cannot be written, 30 s ──────────┘
 */
import { CONDITION_DRAINED, type Endpoint, isConditionTrue } from '../../model/model.ts'
import { CAPABILITY_DRAINING } from '../../model/lanes/lanes.ts'
import { leavingNodes } from '../health/health.ts'
import type { GatewayDeps } from '../world/world.ts'
import { readMembership } from './read-world.ts'

/** The other gateways and the nodes react to a published Endpoint within some hundred milliseconds. */
const WITHDRAW_AFTER_MS = 1500
/** An unavailable API server must not delay the drain without limit. */
const WITHDRAW_UNHEARD_MS = 30_000

export class Departure {
  readonly #api: GatewayDeps['api']
  readonly #node: string
  #leavingSinceMs: number | undefined
  #heardSinceMs: number | undefined

  constructor({ api }: Pick<GatewayDeps, 'api'>, node: string) {
    this.#api = api
    this.#node = node
  }

  /**
   * When the routes are or were withdrawn, on the monotonic clock. Infinity if this node stays. `isFirst`: this process
   * has not planned anything before.
   */
  withdrawsAtMs(leaving: boolean, nowMs: number, isFirst: boolean): number {
    const since = isFirst ? this.#sinceAtStart(nowMs) : nowMs
    this.#leavingSinceMs = leaving ? (this.#leavingSinceMs ?? since) : undefined
    // On a busy node it may take a while until the Endpoint is written.
    this.#heardSinceMs = leaving && this.#isHeard() ? (this.#heardSinceMs ?? since) : undefined
    const [heard, left] = [this.#heardSinceMs ?? Infinity, this.#leavingSinceMs ?? Infinity]
    return Math.min(heard + WITHDRAW_AFTER_MS, left + WITHDRAW_UNHEARD_MS)
  }

  /** The node's Endpoint announces the drain in the API. */
  #isHeard(): boolean {
    const cluster = readMembership(this.#api)?.spec.clusterId
    return cluster !== undefined && leavingNodes(cluster, this.#api.cache('Endpoint').list()).has(this.#node)
  }

  /** Now, except for a process that was restarted on a drained node: that node has withdrawn its routes long ago. */
  #sinceAtStart(nowMs: number): number {
    const { status } = this.#api.cache('Gateway').get(this.#node) ?? {}
    return isConditionTrue(status?.conditions, CONDITION_DRAINED) ? nowMs - WITHDRAW_AFTER_MS : nowMs
  }
}

/** Longest wait, because a far end may never come back. */
const RETURN_MS = 10_000

/**
 * A process that is restarted after the previous one had withdrawn its routes, if its lanes end with the process. It
 * keeps announcing that it leaves until its links are up. The last reported state of the links is no longer true, and a
 * peer that used it to return to this gateway would lose its packets.
 *
 *   not returning ─ begin() ─► returning ─ all links are up, or RETURN_MS is over ─► not returning
 */
export class Returning {
  #untilMs: number | undefined

  /** Takes what the last process published about this node's lanes. `nowMs` is monotonic. */
  begin(published: readonly Endpoint[], nowMs: number): void {
    const isDraining = published.some(({ spec }) => spec.capabilities.includes(CAPABILITY_DRAINING))
    this.#untilMs = isDraining ? nowMs + RETURN_MS : undefined
  }

  /** When it ends at the latest, on the monotonic clock. Undefined if not returning. */
  get untilMs(): number | undefined {
    return this.#untilMs
  }

  /** Call it in every round, before planning. */
  look(nowMs: number, allUp: boolean): void {
    if (this.#untilMs !== undefined && (allUp || nowMs >= this.#untilMs)) this.#untilMs = undefined
  }
}
