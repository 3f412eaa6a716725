/** Buckets of a resilient group: who gets how many, and which of them move (net/ipv4/nexthop.c nh_res_table_upkeep). */
import type { Bucket, ResilientGroup } from '../route/nexthop/next-hop-table.ts'

export class FakeBuckets {
  #group: ResilientGroup
  readonly #members: (number | undefined)[]
  readonly #busy = new Set<number>()

  constructor(group: ResilientGroup) {
    this.#group = group
    this.#members = Array.from({ length: group.buckets }, () => undefined)
    this.change(group)
  }

  /** Other members or weights. Buckets of those that are gone move, and idle ones of those that have too many. */
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

  /** Something flows through the bucket from now on. */
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

/** How many buckets each member is to have; rounded so that the sum is right. */
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
