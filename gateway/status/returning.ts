/**
 * A process that is started anew after the one before had withdrawn (its lanes end with the process): it goes on saying
 * that it goes until its links are up. What was reported of them last is not true any more, and who took this gateway
 * back by that would send into nothing.
 *
 *   not returning ─ begin() ─► returning ─ all links are up, or RETURN_MS is over ─► not returning
 */
import { CAPABILITY_DRAINING } from '../../model/lanes/lane-number.ts'
import type { Endpoint } from '../../model/objects.ts'

/** Some far end may be gone for good. */
export const RETURN_MS = 10_000

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
