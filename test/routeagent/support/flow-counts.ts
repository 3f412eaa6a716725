/** What a table has counted, for tests. */
import type { TableCounts } from '../../../kernel/nft/nft-transaction.ts'
import { COUNTER_ALL, type FlowSet } from '../../../routeagent/flows/plan-flows-table.ts'

type Elements = Readonly<Record<string, readonly [packets: number, bytes: number]>>

/** Takes the elements of each set by key, and how many calls there were in all. */
export function counts(sets: Partial<Record<FlowSet, Elements>>, all: number): TableCounts {
  return {
    counters: new Map([[COUNTER_ALL, all]]),
    sets: new Map(
      Object.entries(sets).map(([set, elements]) => [
        set,
        Object.entries(elements).map(([key, [packets, bytes]]) => ({ key, packets, bytes })),
      ]),
    ),
  }
}
