/**
 * A node that is about to go: it says so with its Endpoint, and withdraws its ways when all had time to hear that.
 *
 *   stays ─ leaving ─► says so ─ its Endpoint is written, 1.5 s ─► withdrawn
 *                         └────── it cannot be written, 30 s ─────────┘
 */
import { CONDITION_DRAINED, type Endpoint, isConditionTrue } from '../../model/model.ts'
import { CAPABILITY_DRAINING } from '../../model/lanes/lanes.ts'
import { leavingNodes } from '../health/health.ts'
import type { GatewayDeps } from '../world/world.ts'
import { readMembership } from './read-world.ts'

/** The other gateways and the nodes follow a published Endpoint in some hundred milliseconds. */
const WITHDRAW_AFTER_MS = 1500
/** An API server that is away must not hold the drain up for ever. */
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
   * When the ways are withdrawn, or were, monotonic; Infinity: this node stays. `isFirst`: nothing was planned before by
   * this process.
   */
  withdrawsAtMs(leaving: boolean, nowMs: number, isFirst: boolean): number {
    const since = isFirst ? this.#sinceAtStart(nowMs) : nowMs
    this.#leavingSinceMs = leaving ? (this.#leavingSinceMs ?? since) : undefined
    // On a busy node it may be a while until that is written.
    this.#heardSinceMs = leaving && this.#isHeard() ? (this.#heardSinceMs ?? since) : undefined
    const [heard, left] = [this.#heardSinceMs ?? Infinity, this.#leavingSinceMs ?? Infinity]
    return Math.min(heard + WITHDRAW_AFTER_MS, left + WITHDRAW_UNHEARD_MS)
  }

  /** Its Endpoint is there for the others to read. */
  #isHeard(): boolean {
    const cluster = readMembership(this.#api)?.spec.clusterId
    return cluster !== undefined && leavingNodes(cluster, this.#api.cache('Endpoint').list()).has(this.#node)
  }

  /** Now, but for a process that was started anew on a node that nothing flowed over: that had withdrawn long ago. */
  #sinceAtStart(nowMs: number): number {
    const { status } = this.#api.cache('Gateway').get(this.#node) ?? {}
    return isConditionTrue(status?.conditions, CONDITION_DRAINED) ? nowMs - WITHDRAW_AFTER_MS : nowMs
  }
}

/** Some far end may be gone for good. */
const RETURN_MS = 10_000

/**
 * A process that is started anew after the one before had withdrawn (its lanes end with the process): it goes on saying
 * that it goes until its links are up. What was reported of them last is not true any more, and who took this gateway
 * back by that would send into nothing.
 *
 *   not returning ─ begin() ─► returning ─ all links are up, or RETURN_MS is over ─► not returning
 */
export class Returning {
  #untilMs: number | undefined

  /** Takes what the last process published of this node's lanes. `nowMs` is monotonic. */
  begin(published: readonly Endpoint[], nowMs: number): void {
    const isDraining = published.some(({ spec }) => spec.capabilities.includes(CAPABILITY_DRAINING))
    this.#untilMs = isDraining ? nowMs + RETURN_MS : undefined
  }

  /** When it ends at the latest, monotonic; undefined: not returning. */
  get untilMs(): number | undefined {
    return this.#untilMs
  }

  /** To be called at each look, before the next is planned. */
  look(nowMs: number, allUp: boolean): void {
    if (this.#untilMs !== undefined && (allUp || nowMs >= this.#untilMs)) this.#untilMs = undefined
  }
}
