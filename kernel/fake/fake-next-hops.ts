/** Next-hop objects and groups in memory: what is there, and what the kernel refuses and drops about them. */
import type { Family } from '../../model/addresses/ip.ts'
import { KernelError } from '../errors.ts'
import { checkGroup, checkHop, checkReplacement, normalGroup, normalHop } from '../route/nexthop/check-next-hop.ts'
import { formatGroup, formatHop } from '../route/nexthop/format-next-hop.ts'
import type { Bucket, NextHopGroup, NextHopListing, NextHopObject } from '../route/nexthop/next-hop-table.ts'
import { FakeBuckets } from './fake-buckets.ts'
import type { FakeLinks } from './fake-links.ts'
import { needReach } from './fake-route-state.ts'

export class FakeNextHops {
  readonly #links: FakeLinks
  readonly #hops = new Map<number, NextHopObject>()
  readonly #groups = new Map<number, NextHopGroup>()
  readonly #buckets = new Map<number, FakeBuckets>()
  readonly #foreign = new Set<number>()
  /** Ids that routes of IPv6 name. */
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

  /** Gives the ids of all that goes: of a hop also the groups that have no other member. */
  remove(id: number, operation: string): readonly number[] {
    if (!this.#hops.has(id) && !this.#groups.has(id))
      throw new KernelError('ENOENT', operation, 'there is none of ours')
    return this.#drop(id)
  }

  /** The device has stopped or gone: its hops go. Gives the ids of all that goes. */
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

  /** Whether a route of that family may name it; throws KernelError EINVAL when not. */
  needUsable(id: number, family: Family, operation: string): void {
    const hops = this.#hopsOf(id)
    if (hops.length === 0) throw new KernelError('EINVAL', operation, `no next hop or group ${id}`)
    if (family === 6 && hops.some((hop) => hop.family === 4)) refuseIpv4(operation)
  }

  /** Where the first member leads. */
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
