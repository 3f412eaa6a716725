/** What the broker has got of the cluster's facts. Pure; the counterpart of publish-ledger.ts. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { canonicalJson } from '../codec/content-hash.ts'

interface FactsRefusal {
  readonly sequence: number
  readonly reason: ReasonCode
}

/** `T` is the cluster's facts, or its status. */
export class FactsLedger<T extends object> {
  #facts: T | undefined
  #text: string | undefined
  /** What the broker has answered for, taken or refused. */
  #reported: string | undefined
  #refusal: FactsRefusal | undefined
  #inFlight: { readonly sequence: number; readonly text: string } | undefined

  set(facts: T): void {
    this.#facts = facts
    this.#text = canonicalJson(facts)
  }

  get inFlight(): number {
    return this.#inFlight === undefined ? 0 : 1
  }

  get settled(): boolean {
    return this.#text === this.#reported
  }

  /** The facts to send now, taken as on their way; undefined when there is nothing to send. */
  next(sequence: number): T | undefined {
    if (this.#text === undefined || this.#text === this.#reported || this.#inFlight !== undefined) return undefined
    this.#inFlight = { sequence, text: this.#text }
    return this.#facts
  }

  acknowledge(sequence: number): void {
    if (this.#inFlight === undefined || this.#inFlight.sequence > sequence) return
    if (this.#refusal !== undefined && this.#refusal.sequence < this.#inFlight.sequence) this.#refusal = undefined
    this.#reported = this.#inFlight.text
    this.#inFlight = undefined
  }

  /** True when it was the facts that `sequence` brought. */
  isInFlight(sequence: number): boolean {
    return this.#inFlight?.sequence === sequence
  }

  /** The broker does not take what `sequence` brought, if that was these; its acknowledgement follows. */
  refuse(sequence: number, reason: ReasonCode): void {
    if (this.isInFlight(sequence)) this.#refusal = { sequence, reason }
  }

  /** Why the broker does not take what it got last; undefined: it does, or has not answered yet. */
  get refused(): ReasonCode | undefined {
    return this.#refusal?.reason
  }

  /** A stream has ended: what was on its way is sent again. */
  forgetInFlight(): void {
    this.#inFlight = undefined
  }

  /** Says everything once more. */
  forgetReported(): void {
    this.#reported = undefined
  }
}
