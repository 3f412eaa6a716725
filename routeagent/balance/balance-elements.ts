/**
 * Converts port plans into elements of nft maps, and their changes into statements. Pure.
 *
 *   services   : address . protocol . port → goto pick-N or client-N
 *   pick-N     : draws one of N slots at random; client-N: by the client's address
 *   slot-K     : address . protocol . port → backend address . port
 *   no-backends: address . protocol . port of services without backends: refused
 *   none-here  : address . protocol . port of services that only other nodes may use: dropped
 *
 * With maps, the number of chains depends on the largest service and not on the number of services.
 */
import type { ElementChange, ElementMaps, NftElement, NftMapType, NftStatement } from '../../kernel/nft/nft.ts'
import type { Prefix } from '../../model/addresses/addresses.ts'
import { NFT_TABLE_NODE } from '../../model/model.ts'
import type { AddressFamily } from './address-family.ts'
import type { PortChange } from './plan-balancing.ts'
import type { PortPlan } from './plan-service.ts'

const TABLE = NFT_TABLE_NODE
export const MAP_SERVICES = 'services'
export const SET_NO_BACKENDS = 'no-backends'
export const SET_NONE_HERE = 'none-here'

export function servicesType(family: AddressFamily): NftMapType {
  return { kind: 'map', key: portKeyType(family), value: 'verdict' }
}

/** Type of the sets of ports that are not balanced. */
export function unservedType(family: AddressFamily): NftMapType {
  return { kind: 'set', key: portKeyType(family) }
}

/** The key with which all of these maps are searched. */
export function portLookup({ nft }: AddressFamily): string {
  return `${nft} daddr . meta l4proto . th dport`
}

function portKeyType({ type }: AddressFamily): string {
  return `${type} . inet_proto . inet_service`
}

export function slotName(slot: number): string {
  return `slot-${slot}`
}

export function pickName(plan: PortPlan): string {
  return `${plan.pick === 'client' ? 'client' : 'pick'}-${plan.slots.length}`
}

/** All elements of these ports. */
export function balanceElements(ports: ReadonlyMap<string, PortPlan>): ElementMaps {
  const maps = new Map<string, Map<string, string | undefined>>([
    [MAP_SERVICES, new Map<string, string | undefined>()],
    [SET_NO_BACKENDS, new Map<string, string | undefined>()],
    [SET_NONE_HERE, new Map<string, string | undefined>()],
  ])
  for (const [key, plan] of ports) {
    for (const { map, value } of portElements(plan)) {
      let elements = maps.get(map)
      if (elements === undefined) maps.set(map, (elements = new Map<string, string | undefined>()))
      elements.set(key, value)
    }
  }
  return maps
}

/** The changes of each map, sorted by map name. */
export function elementChanges(changes: readonly PortChange[]): ElementChange[] {
  const byMap = new Map<string, { remove: string[]; add: NftElement[] }>()
  for (const { key, before, after } of changes) {
    const old = new Map((before === undefined ? [] : portElements(before)).map((e) => [e.map, e.value]))
    const desired = new Map((after === undefined ? [] : portElements(after)).map((e) => [e.map, e.value]))
    for (const [map, value] of old) {
      if (!desired.has(map) || desired.get(map) !== value) listFor(map).remove.push(key)
    }
    for (const [map, value] of desired) {
      if (old.has(map) && old.get(map) === value) continue
      listFor(map).add.push(value === undefined ? { key } : { key, value })
    }
  }
  return [...byMap].sort(([a], [b]) => (a < b ? -1 : 1)).map(([map, lists]) => ({ map, ...lists }))

  function listFor(map: string): { remove: string[]; add: NftElement[] } {
    let lists = byMap.get(map)
    if (lists === undefined) byMap.set(map, (lists = { remove: [], add: [] }))
    return lists
  }
}

/** The slot maps and pick chains that exist. */
export interface TableLayout {
  readonly slots: number
  readonly picks: ReadonlySet<string>
}

export const NO_LAYOUT: TableLayout = { slots: 0, picks: new Set() }

/** The chains and maps that these plans need and that do not exist. Unused ones stay, because they are small. */
export function layout(
  plans: Iterable<PortPlan>,
  existing: TableLayout,
  family: AddressFamily,
): { readonly statements: readonly NftStatement[]; readonly result: TableLayout } {
  const picks = new Map<string, PortPlan>()
  let slots = existing.slots
  for (const plan of plans) {
    if (plan.slots.length === 0) continue
    slots = Math.max(slots, plan.slots.length)
    const name = pickName(plan)
    if (!existing.picks.has(name)) picks.set(name, plan)
  }
  const statements: NftStatement[] = []
  for (let slot = existing.slots; slot < slots; slot++) statements.push(...slotStatements(slot, family))
  for (const name of [...picks.keys()].sort()) {
    statements.push(...pickStatements(name, picks.get(name) as PortPlan, family))
  }
  return { statements, result: { slots, picks: new Set([...existing.picks, ...picks.keys()]) } }
}

function slotStatements(slot: number, family: AddressFamily): NftStatement[] {
  const name = slotName(slot)
  const type = { kind: 'map', key: portKeyType(family), value: `${family.type} . inet_service` } as const
  const rule = `dnat ${family.nft} to ${portLookup(family)} map @${name}`
  return [
    { verb: 'add-map', table: TABLE, map: name, type },
    { verb: 'add-chain', table: TABLE, chain: name },
    { verb: 'add-rule', table: TABLE, chain: name, rule },
  ]
}

function pickStatements(name: string, plan: PortPlan, { nft }: AddressFamily): NftStatement[] {
  const count = plan.slots.length
  // The seed must be the same on all nodes, so that a client reaches the same pod from another node.
  const draw = plan.pick === 'client' ? `jhash ${nft} saddr mod ${count} seed 0x5ea1a9e` : `numgen random mod ${count}`
  const validation = Array.from({ length: count }, (_, slot) => `${slot} : goto ${slotName(slot)}`).join(', ')
  // The kernel refuses numgen and jhash modulo 1, and with one slot there is nothing to draw.
  const rule = count === 1 ? `goto ${slotName(0)}` : `${draw} vmap { ${validation} }`
  return [
    { verb: 'add-chain', table: TABLE, chain: name },
    { verb: 'add-rule', table: TABLE, chain: name, rule },
  ]
}

function portElements(plan: PortPlan): { readonly map: string; readonly value: string | undefined }[] {
  if (plan.slots.length === 0) {
    return [{ map: plan.dropped === true ? SET_NONE_HERE : SET_NO_BACKENDS, value: undefined }]
  }
  return [
    { map: MAP_SERVICES, value: `goto ${pickName(plan)}` },
    ...plan.slots.map((target, slot) => ({ map: slotName(slot), value: target })),
  ]
}

// Backends that run on this node. A backend may call its own service and be balanced to itself. It would drop a packet
// with its own address as source, so such a connection gets the node's address as source. nft cannot compare source and
// destination, so each local backend is an element `address . address`. Pure.

export const SET_HAIRPIN = 'hairpin'

export function hairpinType({ type }: AddressFamily): NftMapType {
  return { kind: 'set', key: `${type} . ${type}` }
}

/** Counts how many service ports use each local backend. Its element is removed with the last one. */
export class LocalBackends {
  readonly #isLocal: (address: string) => boolean
  readonly #uses = new Map<string, number>()

  constructor(nodePodCidrs: readonly Prefix[], family: AddressFamily) {
    this.#isLocal = family.within(nodePodCidrs)
  }

  /** Counts the changes, and returns how the set changes. */
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

  /** Planned elements, like those of balanceElements() for the other maps. */
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
