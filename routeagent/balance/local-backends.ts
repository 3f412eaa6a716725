/**
 * Backends that run on this node. One of them may call its own service and be balanced to itself; it would drop a
 * packet that claims to come from its own address, so such a connection gets the node's address as source. nft
 * cannot compare source with destination, so each local backend is an element `address . address`. Pure.
 */
import type { Prefix } from '../../model/addresses/ip.ts'
import type { NftMapType } from '../../kernel/nft/nft-transaction.ts'
import type { AddressFamily } from '../address-family.ts'
import type { ElementChange } from './balance-elements.ts'
import type { PortChange } from './plan-balancing.ts'
import type { PortPlan } from './plan-service.ts'

export const SET_HAIRPIN = 'hairpin'

export function hairpinType({ type }: AddressFamily): NftMapType {
  return { kind: 'set', key: `${type} . ${type}` }
}

/** Counts how many service ports use each local backend: its element goes with the last of them. */
export class LocalBackends {
  readonly #isLocal: (address: string) => boolean
  readonly #uses = new Map<string, number>()

  constructor(nodePodCidrs: readonly Prefix[], family: AddressFamily) {
    this.#isLocal = family.within(nodePodCidrs)
  }

  /** Counts the changes in; gives what they mean for the set. */
  apply(changes: readonly PortChange[]): ElementChange {
    const touched = new Map<string, boolean>()
    for (const { before, after } of changes) {
      for (const address of this.#localAddresses(after)) this.#count(address, 1, touched)
      for (const address of this.#localAddresses(before)) this.#count(address, -1, touched)
    }
    const remove: string[] = []
    const add: { key: string }[] = []
    for (const [address, had] of [...touched].sort(([a], [b]) => (a < b ? -1 : 1))) {
      const has = this.#uses.has(address)
      if (had && !has) remove.push(elementKey(address))
      if (!had && has) add.push({ key: elementKey(address) })
    }
    return { map: SET_HAIRPIN, remove, add }
  }

  /** Desired elements, as balanceElements() gives them for the other maps. */
  elements(): ReadonlyMap<string, undefined> {
    return new Map([...this.#uses.keys()].sort().map((address) => [elementKey(address), undefined]))
  }

  #localAddresses(plan: PortPlan | undefined): ReadonlySet<string> {
    let found: Set<string> | undefined
    for (const slot of plan?.slots ?? []) {
      const text = slot.slice(0, slot.indexOf(' '))
      if (this.#isLocal(text)) (found ??= new Set()).add(text)
    }
    return found ?? NONE
  }

  #count(address: string, by: number, touched: Map<string, boolean>): void {
    const before = this.#uses.get(address) ?? 0
    if (!touched.has(address)) touched.set(address, before > 0)
    if (before + by > 0) this.#uses.set(address, before + by)
    else this.#uses.delete(address)
  }
}

const NONE: ReadonlySet<string> = new Set()

function elementKey(address: string): string {
  return `${address} . ${address}`
}
