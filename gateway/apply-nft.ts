/** Brings the gateway's nft table to the plan: in one transaction, only when the plan or the table changed. */
import { NFT_TABLE_GATEWAY } from '../model/kernel-ids.ts'
import type { Clock } from '../reconcile/clock.ts'
import { formatNft } from '../kernel/format-nft.ts'
import type { NftStatement } from '../kernel/nft-transaction.ts'
import type { Nft } from '../kernel/nft.ts'
import type { Round } from './round.ts'

/** Reading the table back costs a process; somebody else's hand in it is rare. */
const VERIFY_MS = 25_000

export class NftApplier {
  readonly #nft: Nft
  readonly #clock: Clock
  /** What was applied, and how the kernel lists it. */
  #applied: { readonly text: string; readonly listed: string | undefined; readonly atMs: number } | undefined

  constructor(nft: Nft, clock: Clock) {
    this.#nft = nft
    this.#clock = clock
  }

  /** True when the table is as planned. */
  async apply(statements: readonly NftStatement[], round: Round, signal: AbortSignal): Promise<boolean> {
    const text = formatNft(statements)
    if (this.#applied?.text === text && (await this.#isUntouched(round, signal))) return true
    const done = await round.change('nft', text, () => this.#nft.run(statements, signal))
    this.#applied = undefined
    if (!done) return false
    const listed = await round.attempt(() => this.#nft.listTable(NFT_TABLE_GATEWAY, signal))
    if (listed !== undefined) this.#applied = { text, listed: listed.value, atMs: this.#clock.monotonic() }
    return true
  }

  async #isUntouched(round: Round, signal: AbortSignal): Promise<boolean> {
    const applied = this.#applied
    if (applied === undefined) return false
    const nowMs = this.#clock.monotonic()
    if (nowMs - applied.atMs < VERIFY_MS) return true
    const listed = await round.attempt(() => this.#nft.listTable(NFT_TABLE_GATEWAY, signal))
    if (listed === undefined) return true
    this.#applied = { ...applied, atMs: nowMs }
    return listed.value === applied.listed
  }
}
