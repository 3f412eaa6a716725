/** Next-hop objects and groups in memory: the present state, what the kernel refuses, and what it removes. */
import type { Family } from '../../model/addresses/addresses.ts'
import { KernelError } from '../kernel.ts'
import {
  type Bucket,
  type NextHopGroup,
  type NextHopListing,
  type NextHopObject,
  type ResilientGroup,
  checkGroup,
  checkHop,
  checkNextHopId,
  checkReplacement,
  formatGroup,
  formatHop,
  formatNextHopDeletion,
  normalGroup,
  normalHop,
} from '../route/route.ts'
import type * as item from '../route/route.ts'
import { type FakeLinks, needReach } from './fake-links.ts'

/**
 * Buckets of a resilient group: how many each member has, and which of them move (net/ipv4/nexthop.c
 * nh_res_table_upkeep).
 */
class FakeBuckets {
  #group: ResilientGroup
  readonly #members: (number | undefined)[]
  readonly #busy = new Set<number>()

  constructor(group: ResilientGroup) {
    this.#group = group
    this.#members = Array.from({ length: group.buckets }, () => undefined)
    this.change(group)
  }

  /**
   * Changes members or weights. Moves the buckets of members that are gone, and idle buckets of members that have too
   * many.
   */
  change(group: ResilientGroup): void {
    this.#group = group
    const missing = wanted(group)
    for (const member of this.#members) if (member !== undefined) missing.set(member, (missing.get(member) ?? 0) - 1)
    const stays = new Set(group.members.map(({ id }) => id))
    for (const [index, member] of this.#members.entries()) {
      if (member !== undefined && stays.has(member) && !this.#mayMove(index, missing.get(member) ?? 0)) continue
      const next = group.members.find(({ id }) => (missing.get(id) ?? 0) > 0)
      if (next === undefined) return
      if (member !== undefined) missing.set(member, (missing.get(member) ?? 0) + 1)
      missing.set(next.id, (missing.get(next.id) ?? 0) - 1)
      this.#members[index] = next.id
      this.#busy.delete(index)
    }
  }

  /** Marks the bucket as busy: traffic flows through it from now on. */
  carry(index: number): void {
    this.#busy.add(index)
  }

  list(): readonly Bucket[] {
    return this.#members.map((member = 0, index) => ({
      index,
      member,
      idleMs: this.#busy.has(index) ? 0 : this.#group.idleTimerMs,
    }))
  }

  #mayMove(index: number, missing: number): boolean {
    return missing < 0 && !this.#busy.has(index)
  }
}

/** Returns how many buckets each member should have, rounded so that the sum is exact. */
function wanted({ members, buckets }: ResilientGroup): Map<number, number> {
  const total = members.reduce((sum, { weight = 1 }) => sum + weight, 0)
  const found = new Map<number, number>()
  let weights = 0
  let before = 0
  for (const { id, weight = 1 } of members) {
    weights += weight
    const upTo = Math.round((buckets * weights) / total)
    found.set(id, upTo - before)
    before = upTo
  }
  return found
}

export class FakeNextHops {
  readonly #links: FakeLinks
  readonly #hops = new Map<number, NextHopObject>()
  readonly #groups = new Map<number, NextHopGroup>()
  readonly #buckets = new Map<number, FakeBuckets>()
  readonly #foreign = new Set<number>()
  /** Returns the ids that IPv6 routes refer to. */
  readonly #namedByIpv6: () => ReadonlySet<number>

  constructor(links: FakeLinks, namedByIpv6: () => ReadonlySet<number>) {
    this.#links = links
    this.#namedByIpv6 = namedByIpv6
  }

  list(): NextHopListing {
    return { hops: [...this.#hops.values()].sort(byId), groups: [...this.#groups.values()].sort(byId) }
  }

  replaceHop(hop: NextHopObject, operation: string): void {
    checkHop(hop)
    const { id, family, device, via, onlink } = hop
    this.#links.need(device, operation)
    this.#needReplaceable(hop, operation)
    this.#links.needCarries(device, family, operation)
    if (via !== undefined && onlink !== true) needReach(this.#links.addresses(), device, via, operation)
    const users = [id, ...this.#groupsOf(id).map((group) => group.id)]
    if (family === 4 && users.some((user) => this.#namedByIpv6().has(user))) refuseIpv4(operation)
    this.#hops.set(id, normalHop(hop))
  }

  replaceGroup(wanted: NextHopGroup, operation: string): void {
    checkGroup(wanted)
    this.#needReplaceable(wanted, operation)
    for (const { id } of wanted.members) {
      if (this.#groups.has(id)) throw new KernelError('EINVAL', operation, `member ${id} is a group`)
      if (!this.#hops.has(id)) throw new KernelError('ENOENT', operation, `no next hop ${id}`)
    }
    const hasIpv4 = wanted.members.some(({ id }) => this.#hops.get(id)?.family === 4)
    if (hasIpv4 && this.#namedByIpv6().has(wanted.id)) refuseIpv4(operation)
    this.#setGroup(normalGroup(wanted))
  }

  /** Returns the ids of everything that is removed. A hop also removes the groups that have no other member. */
  remove(id: number, operation: string): readonly number[] {
    if (!this.#hops.has(id) && !this.#groups.has(id))
      throw new KernelError('ENOENT', operation, 'there is none of ours')
    return this.#drop(id)
  }

  /** Removes the hops of a device that has stopped or been removed. Returns the ids of everything that is removed. */
  stopUsing(device: string): readonly number[] {
    const hops = [...this.#hops.values()].filter((hop) => hop.device === device)
    return hops.flatMap(({ id }) => this.#drop(id))
  }

  buckets(id: number, operation: string): readonly Bucket[] {
    if (!this.#hops.has(id) && !this.#groups.has(id))
      throw new KernelError('ENOENT', operation, 'there is none of ours')
    const buckets = this.#buckets.get(id)
    if (buckets === undefined) throw new KernelError('EINVAL', operation, 'only resilient groups have buckets')
    return buckets.list()
  }

  carry(id: number, index: number): void {
    this.#buckets.get(id)?.carry(index)
  }

  putForeign(id: number): void {
    this.#foreign.add(id)
  }

  /** Throws KernelError EINVAL unless a route of the family may refer to the id. */
  needUsable(id: number, family: Family, operation: string): void {
    const hops = this.#hopsOf(id)
    if (hops.length === 0) throw new KernelError('EINVAL', operation, `no next hop or group ${id}`)
    if (family === 6 && hops.some((hop) => hop.family === 4)) refuseIpv4(operation)
  }

  /** Returns the device of the first member. */
  deviceOf(id: number): string | undefined {
    return this.#hopsOf(id)[0]?.device
  }

  commands(): readonly string[] {
    return [...[...this.#hops.values()].map(formatHop), ...[...this.#groups.values()].map(formatGroup)]
  }

  #needReplaceable(item: NextHopObject | NextHopGroup, operation: string): void {
    if (this.#foreign.has(item.id)) throw new KernelError('EEXIST', operation, 'another program has this id')
    const before = this.#hops.get(item.id) ?? this.#groups.get(item.id)
    if (before !== undefined) checkReplacement(before, item, operation)
  }

  #setGroup(group: NextHopGroup): void {
    this.#groups.set(group.id, group)
    if (group.kind === 'plain') return
    const buckets = this.#buckets.get(group.id)
    if (buckets === undefined) this.#buckets.set(group.id, new FakeBuckets(group))
    else buckets.change(group)
  }

  #drop(id: number): readonly number[] {
    const gone = [id]
    for (const group of this.#groupsOf(id)) {
      const members = group.members.filter((member) => member.id !== id)
      if (members.length === 0) gone.push(...this.#drop(group.id))
      else this.#setGroup({ ...group, members })
    }
    this.#hops.delete(id)
    this.#groups.delete(id)
    this.#buckets.delete(id)
    return gone
  }

  #groupsOf(hop: number): readonly NextHopGroup[] {
    return [...this.#groups.values()].filter(({ members }) => members.some(({ id }) => id === hop))
  }

  #hopsOf(id: number): readonly NextHopObject[] {
    const ids = this.#groups.get(id)?.members.map((member) => member.id) ?? [id]
    return ids.map((one) => this.#hops.get(one)).filter((hop) => hop !== undefined)
  }
}

function refuseIpv4(operation: string): never {
  throw new KernelError('EINVAL', operation, 'an IPv6 route cannot use an IPv4 next hop')
}

function byId(a: { readonly id: number }, b: { readonly id: number }): number {
  return a.id - b.id
}

/** What the fake node provides. */
interface FakeNextHopDeps {
  readonly state: FakeNextHops
  readonly features: item.NextHopFeatures
  readonly read: <T>(operation: string, signal: AbortSignal | undefined, action: (operation: string) => T) => Promise<T>
  readonly change: (
    operation: string,
    signal: AbortSignal | undefined,
    action: (operation: string) => void,
  ) => Promise<void>
  /** Removes the routes that refer to these ids. */
  readonly gone: (ids: readonly number[]) => void
  readonly onChange: (listener: () => void) => () => void
}

/**
 * The next-hop objects and groups of a fake node; its FakeRouteTable creates it. They are removed with their devices
 * there, and the routes that refer to them are removed too.
 */
export class FakeNextHopTable implements item.NextHopTable {
  readonly #deps: FakeNextHopDeps
  readonly #stops = new Set<() => void>()

  constructor(deps: FakeNextHopDeps) {
    this.#deps = deps
  }

  features(signal?: AbortSignal): Promise<item.NextHopFeatures> {
    return this.#deps.read('ip nexthop show', signal, () => this.#deps.features)
  }

  list(signal?: AbortSignal): Promise<item.NextHopListing> {
    return this.#deps.read('ip nexthop show', signal, () => this.#deps.state.list())
  }

  replaceHop(hop: item.NextHopObject, signal?: AbortSignal): Promise<void> {
    return this.#deps.change(formatHop(hop), signal, (operation) => {
      this.#need('objects', operation)
      this.#deps.state.replaceHop(hop, operation)
    })
  }

  replaceGroup(group: item.NextHopGroup, signal?: AbortSignal): Promise<void> {
    return this.#deps.change(formatGroup(group), signal, (operation) => {
      this.#need(group.kind === 'plain' ? 'objects' : 'resilient', operation)
      this.#deps.state.replaceGroup(group, operation)
    })
  }

  remove(id: number, signal?: AbortSignal): Promise<void> {
    return this.#deps.change(formatNextHopDeletion({ id }), signal, (operation) => {
      checkNextHopId(id, operation)
      this.#need('objects', operation)
      this.#deps.gone(this.#deps.state.remove(id, operation))
    })
  }

  buckets(id: number, signal?: AbortSignal): Promise<readonly item.Bucket[]> {
    return this.#deps.read(`ip nexthop bucket show id ${id}`, signal, (operation) => {
      checkNextHopId(id, operation)
      this.#need('objects', operation)
      return this.#deps.state.buckets(id, operation)
    })
  }

  onChange(listener: () => void): () => void {
    const stop = this.#deps.onChange(listener)
    this.#stops.add(stop)
    return () => {
      this.#stops.delete(stop)
      stop()
    }
  }

  close(): void {
    for (const stop of this.#stops) stop()
    this.#stops.clear()
  }

  /** Marks a bucket as busy: the kernel keeps only busy buckets where they are. */
  carry(group: number, bucket: number): void {
    this.#deps.state.carry(group, bucket)
  }

  /** Makes another program use an id in our range. */
  putForeign(id: number): void {
    this.#deps.state.putForeign(id)
  }

  #need(feature: keyof item.NextHopFeatures, operation: string): void {
    if (this.#deps.features[feature]) return
    throw new KernelError('EOPNOTSUPP', operation, 'not supported by this kernel')
  }
}
