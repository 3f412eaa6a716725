/** What a table has counted, for tests. */
import type { TableCounts } from '../../../kernel/nft/nft-transaction.ts'
import { type FlowSet, SET_UNCOUNTED } from '../../../routeagent/flows/plan-flows-table.ts'

type Elements = Readonly<Record<string, readonly [packets: number, bytes: number]>>

/** Takes the elements of each set by key, and how many calls had no room. */
export function counts(sets: Partial<Record<FlowSet | `in-${FlowSet}`, Elements>>, uncounted = 0): TableCounts {
  const all = { ...sets, ...(uncounted === 0 ? {} : { [SET_UNCOUNTED]: { original: [uncounted, 0] as const } }) }
  return {
    sets: new Map(
      Object.entries(all).map(([set, elements]) => [
        set,
        Object.entries(elements).map(([key, [packets, bytes]]) => ({ key, packets, bytes })),
      ]),
    ),
  }
}
