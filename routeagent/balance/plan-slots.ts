/**
 * Weights become slots: a service port owns N slots, each slot names one backend, and a connection draws a slot.
 * Pure and deterministic.
 */

export interface WeightedBackend {
  /** As nft writes it: `244.1.0.9 . 8080`. */
  readonly target: string
  /** Above 0; only proportions matter. */
  readonly weight: number
}

/** Most slots a service port may have. More backends than that: each node uses its own 256 of them. */
export const MAX_SLOTS = 256
/** Slots of a service port whose clients stick: enough that each backend gets some. */
export const AFFINITY_SLOTS = 64

/**
 * Slots for connections that draw one at random. The shares equal the weights exactly where their smallest whole
 * numbers sum up to at most MAX_SLOTS, else as nearly as that many slots allow (largest remainder).
 * `seed` (the node's name) decides which backends are used when there are more than MAX_SLOTS, so that the nodes
 * together use all of them.
 */
export function randomSlots(backends: readonly WeightedBackend[], seed: string): string[] {
  const used = limited(backends, seed)
  if (used.every((b) => b.weight === used[0]?.weight)) return used.map((b) => b.target)
  const counts = slotCounts(used.map((b) => b.weight))
  return used.flatMap((backend, i) => new Array<string>(counts[i] ?? 0).fill(backend.target))
}

/**
 * Slots for connections whose client address picks the slot. Each slot takes the backend with the highest score
 * (weighted rendezvous hashing), so a backend that goes only moves its own clients, and one that comes takes its
 * share evenly from all.
 */
export function clientSlots(backends: readonly WeightedBackend[], seed: string): string[] {
  const used = limited(backends, seed)
  if (used.length === 0) return []
  const count = used.length * 2 > AFFINITY_SLOTS ? MAX_SLOTS : AFFINITY_SLOTS
  return Array.from({ length: count }, (_, slot) => {
    let best = used[0] as WeightedBackend
    let bestScore = -1
    for (const backend of used) {
      const score = backend.weight / -Math.log(unitHash(`${addressOf(backend.target)} ${slot}`))
      if (score > bestScore) [best, bestScore] = [backend, score]
    }
    return best.target
  })
}

/** Whole numbers, at least 1 each, in proportion to the weights, summing up to at most MAX_SLOTS. */
export function slotCounts(weights: readonly number[]): number[] {
  if (weights.every((w) => Number.isInteger(w))) {
    const divisor = weights.reduce(gcd, 0)
    const smallest = weights.map((w) => w / divisor)
    if (smallest.reduce((sum, w) => sum + w, 0) <= MAX_SLOTS) return smallest
  }
  const total = weights.reduce((sum, w) => sum + w, 0)
  const spare = MAX_SLOTS - weights.length
  const exact = weights.map((w) => (w / total) * spare)
  const counts = exact.map((share) => 1 + Math.floor(share))
  const byRemainder = exact.map((share, i) => ({ i, rest: share % 1 })).sort((a, b) => b.rest - a.rest || a.i - b.i)
  let left = MAX_SLOTS - counts.reduce((sum, n) => sum + n, 0)
  for (const { i } of byRemainder) {
    if (left <= 0) break
    counts[i] = (counts[i] ?? 0) + 1
    left -= 1
  }
  return counts
}

function limited(backends: readonly WeightedBackend[], seed: string): readonly WeightedBackend[] {
  if (backends.length <= MAX_SLOTS) return backends
  const ranked = backends.map((backend) => ({ backend, rank: hash(`${seed} ${backend.target}`) }))
  ranked.sort((a, b) => a.rank - b.rank || (a.backend.target < b.backend.target ? -1 : 1))
  const chosen = new Set(ranked.slice(0, MAX_SLOTS).map((r) => r.backend))
  return backends.filter((backend) => chosen.has(backend))
}

// Only the address counts: all ports of a service lead a client to the same pod.
function addressOf(target: string): string {
  return target.slice(0, target.indexOf(' '))
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b)
}

/** Above 0, below 1. */
function unitHash(text: string): number {
  return (hash(text) + 0.5) / 2 ** 32
}

/** FNV-1a with a final mix: short inputs that differ in one digit must land far apart. */
function hash(text: string): number {
  let h = 0x811c9dc5
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193)
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}
