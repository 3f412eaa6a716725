/** Counts millions of times by quarters of a millisecond; the counts of several processes can be added up. */

const PER_MS = 4
const MAX_MS = 120_000

/** Counts by bucket, as they are passed from one process to another. */
export type Counts = readonly (readonly [bucket: number, count: number])[]

export class Histogram {
  readonly #counts = new Map<number, number>()
  #size = 0

  get size(): number {
    return this.#size
  }

  add(ms: number): void {
    this.#count(Math.min(MAX_MS * PER_MS, Math.max(0, Math.ceil(ms * PER_MS))), 1)
  }

  merge(counts: Counts): void {
    for (const [bucket, count] of counts) this.#count(bucket, count)
  }

  /** Returns the counts, and resets them. */
  take(): Counts {
    const counts = [...this.#counts]
    this.#counts.clear()
    this.#size = 0
    return counts
  }

  /** The nearest-rank percentile; `share` is 0 to 1. Throws RangeError if nothing was counted. */
  percentile(share: number): number {
    if (this.#size === 0) throw new RangeError('nothing was counted')
    let left = Math.max(1, Math.ceil(share * this.#size))
    for (const [bucket, count] of [...this.#counts].sort(([a], [b]) => a - b)) {
      left -= count
      if (left <= 0) return bucket / PER_MS
    }
    return MAX_MS
  }

  #count(bucket: number, count: number): void {
    this.#counts.set(bucket, (this.#counts.get(bucket) ?? 0) + count)
    this.#size += count
  }
}
