/**
 * Sums what the kernel has counted, by caller's namespace, service and cluster. Bounded and pure: times are given. The
 * kernel counts by client, called address and server; parties.ts says who these are.
 */
import type { TableCounts } from '../../kernel/nft/nft.ts'
import {
  type FlowCounts,
  type FlowParties,
  type FlowRow,
  MAX_FLOW_ROWS,
  NO_FLOWS,
  addFlows,
  connectTimeBucket,
  CONNECT_TIMES_MS,
} from '../../model/model.ts'
import { FLOW_SETS, type FlowSet, SET_UNCOUNTED, setNames } from './plan-flows-table.ts'

/** The three addresses of a call, in the form that nft prints. */
export interface CallAddresses {
  readonly client: string
  readonly called: string
  /** The same as `called` where nothing was translated: a pod was called directly, or a service without endpoints. */
  readonly server: string
}

export interface CallGrowth extends CallAddresses {
  readonly counts: FlowCounts
}

export interface Growth {
  readonly calls: readonly CallGrowth[]
  /** Calls for which the kernel had no room. */
  readonly uncounted: number
}

/** At the end of the key of a call from another cluster, behind the three addresses. */
const INTO = ' . in'
/** Calls that are taken without a break. */
const SLICE = 1000

type Read = Readonly<Record<FlowSet, readonly [packets: number, bytes: number]>>

const UNREAD = [0, 0] as const
const NOTHING_READ: Read = {
  opened: UNREAD,
  answered: UNREAD,
  refused: UNREAD,
  unanswered: UNREAD,
  sent: UNREAD,
  received: UNREAD,
}

/** Finds what has been counted since the reading before. */
export class FlowReadings {
  #known = new Map<string, Read>()
  #uncounted = 0

  /** The table is a new one, and its counts begin at 0. */
  replaced(): void {
    this.#known = new Map()
    this.#uncounted = 0
  }

  /** `noEndpoint`: whether a call was refused because its service has no endpoint. */
  take(counts: TableCounts, noEndpoint: (call: CallAddresses) => boolean): Growth {
    const steps = this.takeInSlices(counts, noEndpoint)
    let step = steps.next()
    while (step.done !== true) step = steps.next()
    return step.value
  }

  /** As take(). Yields now and then, so that a caller may let others run. */
  *takeInSlices(counts: TableCounts, noEndpoint: (call: CallAddresses) => boolean): Generator<undefined, Growth> {
    const found = new Map<string, Partial<Record<FlowSet, readonly [number, number]>>>()
    for (const set of FLOW_SETS) {
      for (const [into, name] of setNames(set).entries()) {
        for (const { key: addresses, packets, bytes } of counts.sets.get(name) ?? []) {
          // A call is either from here or from another cluster.
          const key = into === 0 ? addresses : `${addresses}${INTO}`
          const those = found.get(key)
          if (those === undefined) found.set(key, { [set]: [packets, bytes] })
          else those[set] = [packets, bytes]
        }
        yield undefined
      }
    }
    const known = new Map<string, Read>()
    const calls: CallGrowth[] = []
    for (const [key, sets] of found) {
      if (known.size % SLICE === SLICE - 1) yield undefined
      const [client = '', called = '', server = ''] = key.split(' . ')
      const before = this.#known.get(key)
      const read = { ...NOTHING_READ, ...sets }
      known.set(key, read)
      const grown = (set: FlowSet, at: 0 | 1): number => growth(before?.[set][at] ?? 0, read[set][at])
      const addresses = { client, called, server }
      const newly = grown('opened', 0)
      const part: FlowCounts = {
        ...NO_FLOWS,
        opened: newly,
        answered: grown('answered', 0),
        refused: grown('refused', 0) + (noEndpoint(addresses) ? newly : 0),
        unanswered: grown('unanswered', 0),
        // A packet is counted by one set.
        sentBytes: grown('opened', 1) + grown('unanswered', 1) + grown('sent', 1),
        receivedBytes: grown('answered', 1) + grown('refused', 1) + grown('received', 1),
      }
      if (Object.values(part).some((n) => n > 0)) calls.push({ ...addresses, counts: part })
    }
    this.#known = known
    const now = (counts.sets.get(SET_UNCOUNTED) ?? []).reduce((sum, { packets }) => sum + packets, 0)
    const uncounted = growth(this.#uncounted, now)
    this.#uncounted = now
    return { calls, uncounted }
  }
}

/** An element that is less than before is a new one. */
function growth(before: number, now: number): number {
  return now >= before ? now - before : now
}

const BUCKETS = 6
const BUCKET_MS = 10_000
export const RECENT_SECONDS = (BUCKETS * BUCKET_MS) / 1000

interface Total {
  readonly parties: FlowParties
  total: FlowCounts
  /** By bucket number. */
  readonly recent: Map<number, FlowCounts>
  readonly times: number[]
}

const OTHERS: FlowParties = { way: 'out' }
const noTimes = (): number[] => new Array<number>(CONNECT_TIMES_MS.length + 1).fill(0)

/** The counts by parties: those of MAX_FLOW_ROWS, and the sum of all others. */
export class FlowTotals {
  readonly #totals = new Map<string, Total>()
  readonly #rest: Total = { parties: OTHERS, total: NO_FLOWS, recent: new Map(), times: noTimes() }

  add(parties: FlowParties, counts: FlowCounts, atMs: number): void {
    addTo(this.#of(parties), counts, atMs)
  }

  addRest(counts: FlowCounts, atMs: number): void {
    addTo(this.#rest, counts, atMs)
  }

  addTime(parties: FlowParties, ms: number): void {
    const { times } = this.#of(parties)
    const at = connectTimeBucket(ms)
    times[at] = (times[at] ?? 0) + 1
  }

  get size(): number {
    return this.#totals.size
  }

  /** The most used first: by the calls of late, then by all. */
  rows(atMs: number): { readonly rows: readonly FlowRow[]; readonly rest: FlowRow } {
    return { rows: this.#sorted(atMs).map(({ row }) => row), rest: rowOf(this.#rest, atMs) }
  }

  /** Adds the least used to the rest, so that MAX_FLOW_ROWS are left. */
  trim(atMs: number): void {
    if (this.#totals.size <= MAX_FLOW_ROWS) return
    for (const { key, one } of this.#sorted(atMs).slice(MAX_FLOW_ROWS)) {
      this.#totals.delete(key)
      this.#rest.total = addFlows(this.#rest.total, one.total)
      for (const [bucket, counts] of one.recent) addToBucket(this.#rest.recent, bucket, counts)
      for (const [i, n] of one.times.entries()) this.#rest.times[i] = (this.#rest.times[i] ?? 0) + n
    }
  }

  // Between two calls of trim() there may be twice as many.
  #of(parties: FlowParties): Total {
    const key = partiesKey(parties)
    const known = this.#totals.get(key)
    if (known !== undefined) return known
    if (this.#totals.size >= 2 * MAX_FLOW_ROWS) return this.#rest
    const one: Total = { parties, total: NO_FLOWS, recent: new Map(), times: noTimes() }
    this.#totals.set(key, one)
    return one
  }

  #sorted(atMs: number): { readonly key: string; readonly one: Total; readonly row: FlowRow }[] {
    const all = [...this.#totals].map(([key, one]) => ({ key, one, row: rowOf(one, atMs) }))
    return all.sort(
      (a, b) =>
        b.row.recent.opened - a.row.recent.opened ||
        b.row.total.opened - a.row.total.opened ||
        (a.key < b.key ? -1 : a.key > b.key ? 1 : 0),
    )
  }
}

/** The same for the same parties. No part contains a space. */
export function partiesKey({ way, namespace = '', service = '', cluster = '' }: FlowParties): string {
  return `${way} ${namespace} ${service} ${cluster}`
}

function addTo(one: Total, counts: FlowCounts, atMs: number): void {
  const bucket = Math.floor(atMs / BUCKET_MS)
  one.total = addFlows(one.total, counts)
  addToBucket(one.recent, bucket, counts)
  for (const old of one.recent.keys()) if (old <= bucket - BUCKETS) one.recent.delete(old)
}

function addToBucket(recent: Map<number, FlowCounts>, bucket: number, counts: FlowCounts): void {
  recent.set(bucket, addFlows(recent.get(bucket) ?? NO_FLOWS, counts))
}

function rowOf({ parties, total, recent, times }: Total, atMs: number): FlowRow {
  const oldest = Math.floor(atMs / BUCKET_MS) - BUCKETS
  const late = [...recent].flatMap(([bucket, counts]) => (bucket > oldest ? [counts] : []))
  return { ...parties, total, recent: late.reduce(addFlows, NO_FLOWS), times: [...times] }
}
