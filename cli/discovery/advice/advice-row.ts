/** The shape of a piece of advice, and what its rows share. Pure. */
import type { Finding } from '../evidence.ts'
import type { DataPath } from './data-path.ts'
import type { Discovery } from '../discover.ts'

export interface Advice {
  /** Stable, kebab-case: for tests, documents and `-o yaml`. */
  readonly id: string
  /** What it is about: `Calico`. */
  readonly about: string
  /**
   * `nothing`: works as it is. `action`: Sealane applies `objects`. `instruction`: the user runs `commands` first.
   * `limit`: works, but for what the text says. `unsupported`: will not work; a join needs to be forced.
   */
  readonly kind: 'nothing' | 'action' | 'instruction' | 'limit' | 'unsupported'
  /** Sentences. */
  readonly text: string
  /** For a shell, each on its own line. UPPER-CASE words are to be filled in. */
  readonly commands: readonly string[]
  /** To be applied by server-side apply, and removed when leaving. */
  readonly objects: readonly object[]
}

/** What rows are given to look at. */
export interface AdviceWorld {
  readonly discovery: Discovery
  readonly dataPath: DataPath
}

/** One row for each thing that needs care. A row that does not apply gives nothing. */
export type AdviceRow = (world: AdviceWorld) => Advice | undefined

export function says(
  id: string,
  about: string,
  kind: Advice['kind'],
  text: string,
  more: { readonly commands?: readonly string[]; readonly objects?: readonly object[] } = {},
): Advice {
  return { id, about, kind, text, commands: more.commands ?? [], objects: more.objects ?? [] }
}

export function traitOf(discovery: Discovery, trait: string): boolean {
  return discovery.cni?.value.traits.includes(trait) === true
}

export function platformOf(discovery: Discovery, key: string): Finding<string> | undefined {
  return discovery.platform.find((claim) => claim.value === key)
}
