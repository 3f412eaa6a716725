/**
 * Converts port plans into elements of nft maps, and their changes into statements. Pure. PORT is the key of a port:
 * address . protocol . port. All maps are hash maps, and the chains hold one rule each that all services share.
 *
 *   services        : PORT → goto pick-N-P-TARGET, mixed-N-P, draw-N-0 or sticky-SECONDS-FIRST
 *   pick-N-P-TARGET : draws one of the N slots of part P, whose backends all have this port
 *   mixed-N-P       : the same for backends of different ports
 *   slots           : PORT . number → backend address
 *   members         : PORT . backend address → backend address . port, for mixed and client
 *   draw-N-T        : draws one of N numbers, in turn T
 *   draws-T         : PORT . number → goto pick-N-P-TARGET or mixed-N-P, or the next draw, which is ten times as fine
 *   no-backends     : PORT of services without backends: refused
 *   none-here       : PORT of services that only other nodes may use: dropped
 *   ended           : PORT . backend address whose open connections are ended, also of ports that have gone
 *
 * With session affinity, draws are by the client's address, in client-N-P and hash-N-T; see stickyRules(). FIRST is the
 * name of one of these two. No map leads there, because older kernels check all of the table again for each element of a
 * map that leads to a chain, and would then follow every element of the second map for each one of the first. The number
 * of chains depends on the sizes and target ports of services and not on their number. nft 1.0.6 takes a drawn number in
 * the key of a map only if the value is an address alone, and in rules that add to a map no key of more than 16 bytes.
 */
import type { ElementChange, ElementMaps, NftElement, NftMapType, NftStatement } from '../../kernel/nft/nft.ts'
import type { Prefix } from '../../model/addresses/addresses.ts'
import { NFT_SET_HAIRPIN, NFT_TABLE_NODE } from '../../model/model.ts'
import type { AddressFamily } from '../world/world.ts'
import type { PortChange } from './plan-balancing.ts'
import type { PortPlan, ShareOfSlots } from './plan-service.ts'

const TABLE = NFT_TABLE_NODE
export const MAP_SERVICES = 'services'
export const MAP_SLOTS = 'slots'
/** One map for each draw of a connection: the kernel refuses a map that leads to a chain which searches it again. */
const MAPS_DRAWS = ['draws-0', 'draws-1', 'draws-2'] as const
const MAP_MEMBERS = 'members'
const MAP_AFFINITY = 'affinity'
export const SET_NO_BACKENDS = 'no-backends'
export const SET_NONE_HERE = 'none-here'
export const SET_ENDED = 'ended'

/** Clients and ports whose backend is remembered. If there are more, those that come later go by the hash alone. */
const MAX_REMEMBERED = 65_536
/** The slots of part P have numbers from P times this. */
const NUMBERS_OF_PART = 65_536
/** The kernel draws among two at least, so a single slot has two numbers. */
const FEWEST = 2

/** The maps and sets that the rules of this file use, without elements. */
export function balanceMaps(family: AddressFamily): NftStatement[] {
  const { nft, type } = family
  const port = portKeyType(family)
  const target = `${type} . inet_service`
  const numbered = (value: string, valueOf: string): NftMapType => ({
    kind: 'map',
    key: `${port} . integer`,
    value,
    // A drawn number has no type that has a name.
    typeOf: { key: `${portLookup(family)} . numgen random mod 2`, value: valueOf },
  })
  const maps: readonly (readonly [string, NftMapType])[] = [
    [MAP_SERVICES, { kind: 'map', key: port, value: 'verdict' }],
    [MAP_SLOTS, numbered(type, `${nft} daddr`)],
    ...MAPS_DRAWS.map((map) => [map, numbered('verdict', 'verdict')] as const),
    [MAP_MEMBERS, { kind: 'map', key: `${port} . ${type}`, value: target }],
    [
      MAP_AFFINITY,
      {
        kind: 'map',
        value: type,
        ...(family.family === 4
          ? { key: `${type} . ${port}` }
          : {
              key: 'integer . integer . inet_proto . inet_service',
              typeOf: {
                key: 'numgen random mod 2 . numgen random mod 2 . meta l4proto . th dport',
                value: `${nft} daddr`,
              },
            }),
        flags: ['dynamic', 'timeout'],
        size: MAX_REMEMBERED,
      },
    ],
    [SET_NO_BACKENDS, { kind: 'set', key: port }],
    [SET_NONE_HERE, { kind: 'set', key: port }],
    [SET_ENDED, { kind: 'set', key: `${port} . ${type}` }],
  ]
  return maps.map(([map, type]) => ({ verb: 'add-map', table: TABLE, map, type }))
}

/** The key with which all of these maps are searched. */
export function portLookup({ nft }: AddressFamily): string {
  return `${nft} daddr . meta l4proto . th dport`
}

function portKeyType({ type }: AddressFamily): string {
  return `${type} . inet_proto . inet_service`
}

/** All elements of these ports, by map and key. */
export function balanceElements(ports: ReadonlyMap<string, PortPlan>): ElementMaps {
  const valueOf = ({ key, value }: NftElement): [string, string | undefined] => [key, value]
  return new Map([...elementLists(ports)].map(([map, elements]) => [map, new Map(elements.map(valueOf))]))
}

/** The same for a table that has none of them yet. */
export function allElements(ports: ReadonlyMap<string, PortPlan>): ElementChange[] {
  return [...elementLists(ports)].map(([map, add]) => ({ map, remove: [], add }))
}

function elementLists(ports: ReadonlyMap<string, PortPlan>): ReadonlyMap<string, NftElement[]> {
  const names = [MAP_SERVICES, MAP_SLOTS, ...MAPS_DRAWS, MAP_MEMBERS, SET_NO_BACKENDS, SET_NONE_HERE, SET_ENDED]
  const lists = new Map(names.map((name): [string, NftElement[]] => [name, []]))
  const add: AddElement = (map, key, value) => lists.get(map)?.push(value === undefined ? { key } : { key, value })
  for (const [port, plan] of ports) eachElement(port, plan, add)
  return lists
}

/** The changes of each map, sorted by map name. */
export function elementChanges(changes: readonly PortChange[]): ElementChange[] {
  const byMap = new Map<string, { remove: string[]; add: NftElement[] }>()
  for (const { key: port, before, after } of changes) {
    const old = byPlace(port, before)
    const desired = byPlace(port, after)
    for (const [place, { map, key, value }] of old) {
      const now = desired.get(place)
      if (now === undefined || now.value !== value) listFor(map).remove.push(key)
    }
    for (const [place, { map, key, value }] of desired) {
      const had = old.get(place)
      if (had !== undefined && had.value === value) continue
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

function byPlace(port: string, plan: PortPlan | undefined): ReadonlyMap<string, PlacedElement> {
  const found = new Map<string, PlacedElement>()
  if (plan !== undefined) eachElement(port, plan, (map, key, value) => found.set(`${map} ${key}`, { map, key, value }))
  return found
}

interface PlacedElement {
  readonly map: string
  readonly key: string
  readonly value: string | undefined
}

type AddElement = (map: string, key: string, value: string | undefined) => void

/** Calls `add` for each element of a port. There are tens of thousands, so no list of them is made. */
function eachElement(port: string, plan: PortPlan, add: AddElement): void {
  const { slots, pick, dropped, ended, withdrawn } = plan
  // UDP flows that are ended are forgotten instead (stale-flows.ts).
  if (ended !== undefined && !port.includes(' . udp . '))
    for (const address of new Set(ended.map(addressOf))) add(SET_ENDED, `${port} . ${address}`, undefined)
  if (withdrawn === true) return
  if (slots.length === 0) {
    add(dropped === true ? SET_NONE_HERE : SET_NO_BACKENDS, port, undefined)
    return
  }
  add(MAP_SERVICES, port, `goto ${pick === 'client' ? stickyName(plan) : firstChain(plan)}`)
  if (pick === 'client' || plan.targetPort === undefined) {
    // An address that has two ports is called at the last of them.
    for (const [address, value] of new Map(slots.map((target) => [addressOf(target), target])))
      add(MAP_MEMBERS, `${port} . ${address}`, value)
  }
  if (plan.shares === undefined) {
    eachSlot(port, slots, { part: 0, from: 0, size: slots.length }, add)
    return
  }
  for (const { map, number, chain } of drawsOf(plan)) add(map, `${port} . ${number}`, `goto ${chain}`)
  let from = 0
  for (const { part, size } of plan.shares) {
    eachSlot(port, slots, { part, from, size }, add)
    from += size
  }
}

function eachSlot(
  port: string,
  slots: readonly string[],
  { part, from, size }: { readonly part: number; readonly from: number; readonly size: number },
  add: AddElement,
): void {
  for (let i = 0; i < Math.max(FEWEST, size); i++)
    add(MAP_SLOTS, `${port} . ${part * NUMBERS_OF_PART + i}`, addressOf(slots[from + (i % size)] ?? ''))
}

function addressOf(target: string): string {
  return target.slice(0, target.indexOf(' '))
}

function partsOf({ shares, slots }: PortPlan): readonly ShareOfSlots[] {
  return shares ?? [{ part: 0, size: slots.length, share: 1 }]
}

// Draws of a cluster by its share. The first draw is among ten and decides by the first digit of each share. What the
// digits leave over goes on to the next draw, which decides by the second digit, and so on. So a share in thousandths
// costs a few dozen elements and not a thousand, and nine of ten connections draw once.

interface Draw {
  /** How many numbers there are. */
  readonly count: number
  /** The place of the draw among those of a connection, from 0. */
  readonly turn: number
  /** Which part each number leads to. Undefined: to the next draw. */
  readonly parts: readonly (number | undefined)[]
}

/** The draws of these shares, whose sum is a power of ten, or at most ten. The first comes first. */
export function drawsOfShares(shares: readonly Pick<ShareOfSlots, 'part' | 'share'>[]): readonly Draw[] {
  const total = shares.reduce((sum, { share }) => sum + share, 0)
  const draws: Draw[] = []
  let unit = total > 10 ? total / 10 : 1
  let count = total > 10 ? 10 : total
  let left = shares
  while (count > 0) {
    const step = unit
    const parts: (number | undefined)[] = left.flatMap(({ part, share }) =>
      new Array<number>(Math.floor(share / step)).fill(part),
    )
    const more = count - parts.length
    while (parts.length < count) parts.push(undefined)
    draws.push({ count, turn: draws.length, parts })
    left = left.map(({ part, share }) => ({ part, share: share % step }))
    count = more * 10
    unit = step / 10
  }
  return draws
}

function drawsOf(plan: PortPlan): { readonly map: string; readonly number: number; readonly chain: string }[] {
  const { shares } = plan
  if (shares === undefined) return []
  const chains = new Map(shares.map((one) => [one.part, slotChain(plan, one)]))
  const draws = drawsOfShares(shares)
  return draws.flatMap(({ turn, parts }) => {
    const next = draws[turn + 1]
    return parts.map((part, number) => ({
      map: drawMap(turn),
      number,
      chain: (part === undefined ? next && drawChain(plan, next) : chains.get(part)) ?? '',
    }))
  })
}

// Chains: each has one rule, which depends on nothing but its name.

function slotChain({ pick, targetPort }: PortPlan, { part, size }: Pick<ShareOfSlots, 'part' | 'size'>): string {
  const count = Math.max(FEWEST, size)
  if (pick === 'client') return `client-${count}-${part}`
  return targetPort === undefined ? `mixed-${count}-${part}` : `pick-${count}-${part}-${targetPort}`
}

function drawChain({ pick }: PortPlan, { count, turn }: Pick<Draw, 'count' | 'turn'>): string {
  return `${pick === 'client' ? 'hash' : 'draw'}-${count}-${turn}`
}

function drawMap(turn: number): string {
  return MAPS_DRAWS[turn] ?? MAPS_DRAWS[2]
}

function stickyName(plan: PortPlan): string {
  return `sticky-${Math.max(1, plan.affinitySeconds ?? 0)}-${firstChain(plan)}`
}

function firstChain(plan: PortPlan): string {
  if (plan.shares === undefined) return slotChain(plan, { part: 0, size: plan.slots.length })
  const [draw] = drawsOfShares(plan.shares)
  return draw === undefined ? slotChain(plan, partsOf(plan)[0] ?? { part: 0, size: 0 }) : drawChain(plan, draw)
}

function chainsOf(plan: PortPlan): readonly string[] {
  if (plan.shares === undefined && plan.pick === 'random') return [firstChain(plan)]
  const chains = partsOf(plan).map((one) => slotChain(plan, one))
  if (plan.shares !== undefined) chains.push(...drawsOfShares(plan.shares).map((draw) => drawChain(plan, draw)))
  if (plan.pick === 'client') chains.push(stickyName(plan))
  return chains
}

/** The chains that exist. */
export interface TableLayout {
  readonly picks: ReadonlySet<string>
}

export const NO_LAYOUT: TableLayout = { picks: new Set() }

/** The chains that these plans need and that do not exist. Unused ones stay, because they are small. */
export function layout(
  plans: Iterable<PortPlan>,
  existing: TableLayout,
  family: AddressFamily,
): { readonly statements: readonly NftStatement[]; readonly result: TableLayout } {
  const names = new Set<string>()
  for (const plan of plans) {
    if (plan.slots.length === 0) continue
    for (const name of chainsOf(plan)) if (!existing.picks.has(name)) names.add(name)
  }
  if (names.size === 0) return { statements: [], result: existing }
  // Sorted, so that sticky chains come after those to which they jump.
  const statements = [...names]
    .sort()
    .flatMap((chain): NftStatement[] => [
      { verb: 'add-chain', table: TABLE, chain },
      ...rulesOf(chain, family).map((rule): NftStatement => ({ verb: 'add-rule', table: TABLE, chain, rule })),
    ])
  return { statements, result: { picks: new Set([...existing.picks, ...names]) } }
}

// The seed must be the same on all nodes, so that a client reaches the same pod from another node, unless the service has
// so many that each has one slot, in an order that depends on what the node has seen. Each draw has its own
// one, because the next draw would otherwise depend on the one before.
const SEED = 0x5ea1a9e

function rulesOf(chain: string, family: AddressFamily): readonly string[] {
  const [kind = '', ...numbers] = chain.split('-')
  const { nft } = family
  const [count = 0, number = 0, targetPort = 0] = numbers.map(Number)
  const from = (offset: number): string => (offset === 0 ? '' : ` offset ${offset}`)
  const key = portLookup(family)
  const random = (offset: number): string => `${key} . numgen random mod ${count}${from(offset)}`
  const hashed = (offset: number, seed: number): string =>
    `${key} . jhash ${nft} saddr mod ${count} seed 0x${seed.toString(16)}${from(offset)}`
  const first = number * NUMBERS_OF_PART
  switch (kind) {
    case 'pick':
      return [`dnat ${nft} to ${random(first)} map @${MAP_SLOTS} : ${targetPort}`]
    case 'mixed':
      return [`${nft} daddr set ${random(first)} map @${MAP_SLOTS}`, toMember(nft), restored(nft)]
    case 'client':
      return [`${nft} daddr set ${hashed(first, SEED)} map @${MAP_SLOTS}`]
    case 'draw':
      return [`${random(0)} vmap @${drawMap(number)}`]
    case 'hash':
      // nft 1.0.6 has no room for a hash beside an IPv6 key of this length.
      return [`${family.family === 4 ? hashed(0, SEED + 1 + number) : random(0)} vmap @${drawMap(number)}`]
    default:
      return stickyRules(count, numbers.slice(1).join('-'), family)
  }
}

/** For a packet whose destination has become a backend of the connection. */
function toMember(nft: string): string {
  return `dnat ${nft} to ct original ${nft} daddr . meta l4proto . th dport . ${nft} daddr map @${MAP_MEMBERS}`
}

function restored(nft: string): string {
  return `${nft} daddr set ct original ${nft} daddr`
}

/**
 * A map remembers the backend of each client and port, and each new connection renews it. Rules cannot look up what
 * another map returned, so the address of the backend stands in the packet meanwhile: its own destination is that of the
 * connection (`ct original`), and no mark is used. A remembered backend that is no member any more is forgotten, and
 * another is drawn, by the chain `first`. If the map is full, the rule that adds to it ends, and the connection goes to
 * the backend drawn.
 */
function stickyRules(seconds: number, first: string, family: AddressFamily): readonly string[] {
  const { nft } = family
  const ends = `${nft} saddr . ct original ${nft} daddr`
  // Clients of IPv6 are told apart by 64 bits.
  const hash = (seed: number): string => `jhash ${ends} mod 4294967295 seed 0x${seed.toString(16)}`
  const client = `${family.family === 4 ? ends : `${hash(SEED)} . ${hash(SEED + 1)}`} . meta l4proto . th dport`
  const remember = `update @${MAP_AFFINITY} { ${client} timeout ${seconds}s : ${nft} daddr }`
  return [
    `${nft} daddr set ${client} map @${MAP_AFFINITY} ${remember}`,
    toMember(nft),
    `delete @${MAP_AFFINITY} { ${client} : ${nft} daddr }`,
    restored(nft),
    `jump ${first}`,
    remember,
    toMember(nft),
    restored(nft),
  ]
}

// Backends that run on this node. A backend may call its own service and be balanced to itself. It would drop a packet
// with its own address as source, so such a connection gets the node's address as source. nft cannot compare source and
// destination, so each local backend is an element `address . address`. Pure.

export const SET_HAIRPIN = NFT_SET_HAIRPIN

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

  /** The addresses of all local backends. */
  addresses(): ReadonlySet<string> {
    return new Set(this.#uses.keys())
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
