/** The type of a piece of advice, and functions that the rows of advice share. Pure. */
import type { Discovery } from '../discover.ts'
import type { Finding } from '../evidence.ts'

/**
 * The capabilities of the data path of this release on which the advice depends. A change of the data path changes
 * these values, and the advice and its tests follow. docs/operations.md, "Clusters and CNIs", states the same.
 */
export const DATA_PATH = {
  /**
   * Sealane's routing rules (73 to 75) precede a CNI's rules for each pod: 512 to 1536 for the Amazon VPC CNI, 110 and
   * 111 for Cilium with addresses of a cloud.
   */
  rulesBeforeThoseOfPods: true,
  /** gateway and routeagent know the pod ranges of a node even if they are not in Node.spec.podCIDRs. */
  knowsRangesOfCnis: true,
  /**
   * Nodes may have addresses inside the cluster's pod CIDRs, as they do if pods have addresses of a cloud's network.
   */
  nodesMayBeInPodCidrs: true,
  /** The identity translation that keeps source addresses precedes masquerading at priority 90. */
  keepsSourceBefore90: true,
} as const satisfies Readonly<Record<string, boolean>>

export type DataPath = Readonly<Record<keyof typeof DATA_PATH, boolean>>

export interface Advice {
  /** Stable and in kebab-case, for tests, documents and `-o yaml`. */
  readonly id: string
  /** The subject: `Calico`. */
  readonly about: string
  /**
   * `nothing`: works without changes. `action`: Sealane applies `objects`. `instruction`: the user runs `commands`
   * first. `limit`: works, except for what the text says. `unsupported`: does not work, and a join needs --force.
   */
  readonly kind: 'nothing' | 'action' | 'instruction' | 'limit' | 'unsupported'
  /** Whole sentences. */
  readonly text: string
  /** Shell commands, one line each. The user replaces words in UPPER CASE. */
  readonly commands: readonly string[]
  /** Objects that a join applies with server-side apply, and that a leave removes. */
  readonly objects: readonly object[]
}

/** The input of the rows. */
export interface AdviceWorld {
  readonly discovery: Discovery
  readonly dataPath: DataPath
  /** The UDP port of the overlay. */
  readonly overlayPort: number
}

/** One row for each subject. Undefined if the row does not apply. */
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
