/** The shape of a piece of advice, and what its rows share. Pure. */
import type { Discovery } from '../discover.ts'
import type { Finding } from '../evidence.ts'

/**
 * What the data path of this release can and cannot do, as far as the advice depends on it. A change of the data path
 * changes the row; the advice and its tests follow. docs/operations.md, "Clusters and CNIs", says the same.
 */
export const DATA_PATH = {
  /**
   * Our routing rules (73 to 75) are looked up before a CNI's rules for each pod: 512 to 1536 for the Amazon VPC
   * CNI, 110 and 111 for Cilium with addresses of a cloud.
   */
  rulesBeforeThoseOfPods: true,
  /** gateway and routeagent know which pods a node has also where Node.spec.podCIDRs does not say it. */
  knowsRangesOfCnis: true,
  /** Nodes may have addresses inside the cluster's pod CIDRs, as where pods have addresses of a cloud's network. */
  nodesMayBeInPodCidrs: true,
  /** The identity translation that keeps source addresses comes before masquerading at priority 90. */
  keepsSourceBefore90: true,
} as const satisfies Readonly<Record<string, boolean>>

export type DataPath = Readonly<Record<keyof typeof DATA_PATH, boolean>>

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
