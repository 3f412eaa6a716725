/** Keeps the gateway's nft table of one family as planned. */
import { NFT_TABLE_GATEWAY } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import {
  type ApplyInit,
  type ElementMaps,
  type Nft,
  type NftStatement,
  TableApplier,
  elementDiff,
  elementStatements,
  elementsOf,
  formatNft,
  removeTable,
} from '../../kernel/nft/nft.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Round } from '../../kernel/apply/apply.ts'

const TABLE = NFT_TABLE_GATEWAY
/** Interval of reading the table back, which starts a process. Changes by other programs are rare. */
const VERIFY_MS = 25_000

export class GatewayTable {
  readonly #nft: Nft
  readonly #clock: Clock
  readonly #table: TableApplier
  /** The elements of the last applied plan. */
  #elements: ElementMaps = new Map()

  constructor(nft: Nft, clock: Clock) {
    this.#nft = nft
    this.#clock = clock
    this.#table = new TableApplier({ nft, clock, table: TABLE, comparison: 'elements with the last listing' })
  }

  /** As TableApplier.follow(). */
  follow(logger: Pick<Logger, 'warn'>, poke: () => void): () => void {
    return this.#table.follow(logger, poke)
  }

  /** Resolves to true if the table is as planned. */
  async apply(statements: readonly NftStatement[], round: Round, signal: AbortSignal): Promise<boolean> {
    const { family } = this.#nft
    const elements = elementsOf(statements)
    const planned = {
      fixed: formatNft(
        statements.filter(({ verb }) => verb !== 'add-elements'),
        family,
      ),
      replacement: () => statements,
      delta: () => elementStatements(TABLE, elementDiff(this.#elements, elements)),
      elements: () => elements,
    }
    const prefix = `table ${family} ${TABLE}: `
    const looks = this.#clock.monotonic() - this.#table.lookedAtMs >= VERIFY_MS
    const init: ApplyInit = {
      looks,
      drift: {
        repaired: (what, reason, items) => {
          const named = items.map((item) => `${prefix}${item}`)
          round.drift?.repaired(what, reason, named)
        },
      },
      onSent: (sent) => round.note('nft', formatNft(sent.statements, family)),
    }
    await round.attempt(() => this.#table.apply(planned, init, signal))
    this.#elements = elements
    return this.#table.isKnown
  }

  /** For a family without a plan: removes the table if an earlier plan or run left one. */
  async remove(round: Round, signal: AbortSignal): Promise<void> {
    await removal(this.#nft, round, () => this.#table.remove(signal))
  }
}

/** Removes the gateway's table if it exists. A failure is that of the round. */
export async function removeGatewayTable(nft: Nft, round: Round, signal: AbortSignal): Promise<void> {
  await removal(nft, round, () => removeTable(nft, TABLE, signal))
}

async function removal({ family }: Nft, round: Round, remove: () => Promise<boolean>): Promise<void> {
  const removed = await round.attempt(remove)
  if (removed?.value === true) round.note('nft', formatNft([{ verb: 'delete-table', table: TABLE }], family).trim())
}
