/**
 * Applies the plan to the gateway's nft table in one transaction, only if the plan or the table changed. If only
 * elements of a set differ, the transaction contains only these.
 */
import { NFT_TABLE_GATEWAY } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { tableDrift } from '../../kernel/kernel.ts'
import { type Nft, type NftFamily, type NftStatement, formatNft } from '../../kernel/nft/nft.ts'
import type { Round } from '../../kernel/apply/apply.ts'

/** Interval of reading the table back, which starts a process. Changes by other programs are rare. */
const VERIFY_MS = 25_000

type ElementStatement = Extract<NftStatement, { readonly verb: 'add-elements' | 'delete-elements' }>

interface Applied {
  /** The last applied plan. */
  readonly statements: readonly NftStatement[]
  readonly text: string
  /** The table as the kernel lists it. */
  readonly listed: string | undefined
  readonly atMs: number
}

export class NftApplier {
  readonly #nft: Nft
  readonly #clock: Clock
  #applied: Applied | undefined
  /** The gateway's table does not exist. This is checked only once, because no other program creates it. */
  #isGone = false

  constructor(nft: Nft, clock: Clock) {
    this.#nft = nft
    this.#clock = clock
  }

  /** Another program has changed the table, or may have: the next apply() checks it. */
  suspect(): void {
    if (this.#applied !== undefined) this.#applied = { ...this.#applied, atMs: -Infinity }
  }

  /** Resolves to true if the table is as planned. */
  async apply(statements: readonly NftStatement[], round: Round, signal: AbortSignal): Promise<boolean> {
    const { family } = this.#nft
    const text = formatNft(statements, family)
    const known = this.#applied
    if (known?.text === text && (await this.#isUntouched(round, signal))) return true
    const same = known === undefined || known.text === text
    const changes = (same ? undefined : elementChanges(known.statements, statements, family)) ?? statements
    this.#isGone = false
    const done = await round.change('nft', formatNft(changes, family), () => this.#nft.run(changes, signal))
    // This applies after a refusal too: the table is then in an unknown state, and the next round creates it again.
    this.#applied = undefined
    if (!done) return false
    const listed = await round.attempt(() => this.#nft.listTable(NFT_TABLE_GATEWAY, signal))
    if (listed !== undefined) {
      this.#applied = { statements, text, listed: listed.value, atMs: this.#clock.monotonic() }
    }
    return true
  }

  /** For a family without a plan: removes the table if an earlier plan or run left one. */
  async remove(round: Round, signal: AbortSignal): Promise<void> {
    if (this.#isGone) return
    this.#applied = undefined
    this.#isGone = await removeTable(this.#nft, round, signal)
  }

  async #isUntouched(round: Round, signal: AbortSignal): Promise<boolean> {
    const applied = this.#applied
    if (applied === undefined) return false
    const nowMs = this.#clock.monotonic()
    if (nowMs - applied.atMs < VERIFY_MS) return true
    const listed = await round.attempt(() => this.#nft.listTable(NFT_TABLE_GATEWAY, signal))
    if (listed === undefined) return true
    this.#applied = { ...applied, atMs: nowMs }
    if (listed.value === applied.listed) return true
    const { reason, items } = tableDrift(applied.listed ?? '', listed.value)
    const table = `table ${this.#nft.family} ${NFT_TABLE_GATEWAY}`
    round.drift?.repaired(
      'nft-table',
      reason,
      items.map((item) => `${table}: ${item}`),
    )
    return false
  }
}

/** Removes the gateway's table if it exists. Resolves to true if none is left. */
export async function removeTable(nft: Nft, round: Round, signal: AbortSignal): Promise<boolean> {
  const tables = await round.attempt(() => nft.tables(NFT_TABLE_GATEWAY, signal))
  if (tables === undefined) return false
  if (!tables.value.includes(NFT_TABLE_GATEWAY)) return true
  const statement = { verb: 'delete-table', table: NFT_TABLE_GATEWAY } as const
  return round.change('nft', formatNft([statement], nft.family).trim(), () => nft.run([statement], signal))
}

/** Statements that change the elements of one plan into those of the other. Undefined if more than elements differs. */
function elementChanges(
  before: readonly NftStatement[],
  after: readonly NftStatement[],
  family: NftFamily,
): NftStatement[] | undefined {
  const rest = (all: readonly NftStatement[]): NftStatement[] => all.filter((s) => !isElements(s))
  if (formatNft(rest(before), family) !== formatNft(rest(after), family)) return undefined
  const [had, wanted] = [elementsByMap(before), elementsByMap(after)]
  const changes: NftStatement[] = []
  for (const map of new Set([...had.keys(), ...wanted.keys()])) {
    const [old, elements] = [had.get(map) ?? [], wanted.get(map) ?? []]
    const table = NFT_TABLE_GATEWAY
    const [oldKeys, keys] = [keysOf(old), keysOf(elements)]
    const gone = old.filter(({ key }) => !keys.has(key))
    const added = elements.filter(({ key }) => !oldKeys.has(key))
    if (gone.length > 0) changes.push({ verb: 'delete-elements', table, map, elements: gone })
    if (added.length > 0) changes.push({ verb: 'add-elements', table, map, elements: added })
  }
  return changes
}

function elementsByMap(statements: readonly NftStatement[]): Map<string, ElementStatement['elements']> {
  return new Map(statements.filter(isElements).map(({ map, elements }) => [map, elements]))
}

function keysOf(elements: ElementStatement['elements']): Set<string> {
  return new Set(elements.map((element) => element.key))
}

function isElements(statement: NftStatement): statement is ElementStatement {
  return statement.verb === 'add-elements'
}
