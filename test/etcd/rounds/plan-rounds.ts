/** Plans the faults of each round at random, repeatable by seed. Each kind of fault comes equally often. */
import type { Chance } from './chance.ts'

export const FAULT_KINDS = [
  'broker killed',
  'all brokers killed',
  'broker stops for a while',
  'etcd member killed',
  'etcd leader killed',
  'etcd majority killed',
  'etcd member stops for a while',
  'broker cut from one etcd member',
  'broker cut from etcd',
  'broker cut from members',
  'brokers cut from each other',
  'etcd member cut from the others',
  'etcd leader cut from the others',
  'link of a broker down',
  'link of an etcd member down',
  'slow disk of an etcd member',
  'slow disks of etcd',
  'full disk of an etcd member',
  'full disks of etcd',
  'full disk of a broker',
  'clock of a broker jumps',
] as const

export type FaultKind = (typeof FAULT_KINDS)[number]

export interface PlannedFault {
  readonly kind: FaultKind
  /** The number of the broker or the etcd member, 0 to 2. */
  readonly target: number
  /** The offset of a clock or the delay of a slow disk, in milliseconds. */
  readonly amount: number
  /** Milliseconds from the start of the round. */
  readonly atMs: number
  readonly lastsMs: number
}

export type PlannedRound = readonly PlannedFault[]

const CLOCK_JUMPS = [-3 * 3_600_000, -20 * 60_000, -60_000, 60_000, 20 * 60_000, 3 * 3_600_000] as const
const DISK_DELAYS = [30, 100, 300] as const
const MOST_AT_ONCE = 3

export function planRounds(rounds: number, chance: Chance): PlannedRound[] {
  let deck: FaultKind[] = []
  return Array.from({ length: rounds }, () => {
    const count = 1 + chance.below(MOST_AT_ONCE)
    const round: PlannedFault[] = []
    while (round.length < count) {
      if (deck.length === 0) deck = chance.shuffled(FAULT_KINDS)
      const kind = deck.pop() as FaultKind
      const amounts = kind.startsWith('slow') ? DISK_DELAYS : kind.startsWith('clock') ? CLOCK_JUMPS : [0, 1, 2]
      const amount = chance.pick<number>(amounts)
      round.push({ kind, target: chance.below(3), amount, atMs: chance.below(1000), lastsMs: 500 + chance.below(2500) })
    }
    return round.sort((a, b) => a.atMs - b.atMs)
  })
}

/** Describes a fault for readers of the test output. */
export function faultText({ kind, target, amount, atMs, lastsMs }: PlannedFault): string {
  const much = kind.startsWith('slow') || kind.startsWith('clock') ? `, ${amount} ms` : ''
  return `${kind} (${target}${much}) from ${atMs} to ${atMs + lastsMs} ms`
}
