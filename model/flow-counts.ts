/** What a node counts about calls between clusters, as its status page gives it and commands read it. Pure. */

export interface FlowCounts {
  /** New connections, and new UDP flows. */
  readonly opened: number
  readonly answered: number
  /** Ended by a reset or an ICMP error, or without an endpoint. */
  readonly refused: number
  /** Without an answer before the caller sent again: TCP after a second. Some of them are answered later. */
  readonly unanswered: number
  /** Of a sample: those that have ended, whichever way. */
  readonly ended: number
  /**
   * Of these: those that connection tracking forgot: no answer came, or data had no acknowledgement, and neither end
   * closed or reset the connection. Its time-out of an idle connection is days, which is longer than ends are awaited.
   */
  readonly timedOut: number
  /** Octets of IP packets, from the caller and to it. */
  readonly sentBytes: number
  readonly receivedBytes: number
}

export const NO_FLOWS: FlowCounts = {
  opened: 0,
  answered: 0,
  refused: 0,
  unanswered: 0,
  ended: 0,
  timedOut: 0,
  sentBytes: 0,
  receivedBytes: 0,
}

const COUNT_NAMES = Object.keys(NO_FLOWS) as (keyof FlowCounts)[]

export function addFlows(a: FlowCounts, b: FlowCounts): FlowCounts {
  return {
    opened: a.opened + b.opened,
    answered: a.answered + b.answered,
    refused: a.refused + b.refused,
    unanswered: a.unanswered + b.unanswered,
    ended: a.ended + b.ended,
    timedOut: a.timedOut + b.timedOut,
    sentBytes: a.sentBytes + b.sentBytes,
    receivedBytes: a.receivedBytes + b.receivedBytes,
  }
}

/** Who calls what. What is not known is absent. */
export interface FlowParties {
  /** `out`: a pod or program of this cluster calls. `in`: another cluster calls a pod of this one. */
  readonly way: 'out' | 'in'
  /** The namespace of the caller, if it is a pod of this node. */
  readonly namespace?: string
  /** `namespace/name` of the service that is called. */
  readonly service?: string
  /** `out`: the cluster that answers; `in`: the one that calls. */
  readonly cluster?: string
}

export interface FlowRow extends FlowParties {
  /** Since the process began. */
  readonly total: FlowCounts
  /** In the last FlowPage.recentSeconds. */
  readonly recent: FlowCounts
  /** Samples of the time from SYN to SYN-ACK, by CONNECT_TIMES_MS, and one more for what took longer. */
  readonly times: readonly number[]
}

/** Upper bounds of connect times in milliseconds. */
export const CONNECT_TIMES_MS: readonly number[] = [
  0.1, 0.25, 0.5, 1, 2, 4, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000, 3000,
]

/** The bucket of a connect time. */
export function connectTimeBucket(ms: number): number {
  const at = CONNECT_TIMES_MS.findIndex((bound) => ms <= bound)
  return at < 0 ? CONNECT_TIMES_MS.length : at
}

/**
 * The time in milliseconds below which the share `part` (0 to 1) of the samples is, evenly between the bounds of its
 * bucket. Undefined without samples. What took longer than the last bound counts as that bound.
 */
export function connectTimeQuantile(times: readonly number[], part: number): number | undefined {
  const all = times.reduce((sum, n) => sum + n, 0)
  if (all === 0) return undefined
  const wanted = all * part
  let before = 0
  for (const [i, n] of times.entries()) {
    if (n > 0 && before + n >= wanted) {
      const low = CONNECT_TIMES_MS[i - 1] ?? 0
      const high = CONNECT_TIMES_MS[i] ?? low
      // Rounding must not lead into the next bucket.
      return Math.min(high, low + (high - low) * (Math.max(0, wanted - before) / n))
    }
    before += n
  }
  return CONNECT_TIMES_MS.at(-1)
}

export function addTimes(a: readonly number[], b: readonly number[]): readonly number[] {
  return Array.from({ length: Math.max(a.length, b.length) }, (_, i) => (a[i] ?? 0) + (b[i] ?? 0))
}

export const FLOW_OUTCOMES = ['answered', 'refused', 'unanswered', 'timed-out', 'denied'] as const
export type FlowOutcome = (typeof FLOW_OUTCOMES)[number]

export interface FlowEndpoint {
  readonly address: string
  readonly namespace?: string
  readonly pod?: string
  readonly service?: string
  readonly cluster?: string
}

/** One call that was sampled. */
export interface FlowLine {
  /** Rises with each line of a process. Absent for refusals of access rules. */
  readonly number?: number
  /** RFC 3339. */
  readonly at: string
  readonly outcome: FlowOutcome
  /** A reason code, unless it was answered. */
  readonly reason?: string
  readonly from: FlowEndpoint
  readonly to: FlowEndpoint
  /** As LoggedPacket.protocol of kernel/nflog. */
  readonly protocol: string
  readonly port?: number
  /** From the first packet to its answer; of a call that timed out, to when that was noticed. */
  readonly ms?: number
}

/** What a route agent says about the calls of its node. */
export interface FlowPage {
  /** RFC 3339: when counting began. */
  readonly since: string
  readonly recentSeconds: number
  /** The most used first. */
  readonly rows: readonly FlowRow[]
  /** The sum of all others. */
  readonly rest: FlowRow
  /** Samples, the oldest first. */
  readonly lines: readonly FlowLine[]
  /** Calls a second of which lines are made at most. */
  readonly sampled: number
  /** Why nothing is counted, or nothing is sampled. */
  readonly problem?: string
}

/** The most rows of a page. */
export const MAX_FLOW_ROWS = 1000

/** Counts that route agents of earlier releases do not have. */
const LATER_NAMES: readonly (keyof FlowCounts)[] = ['ended', 'timedOut']

/** The counts that another program wrote. Undefined: the value has not all of them. */
export function readFlowCounts(value: unknown): FlowCounts | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const fields = value as Readonly<Record<string, unknown>>
  const found: Record<keyof FlowCounts, number> = { ...NO_FLOWS }
  for (const name of COUNT_NAMES) {
    const count = fields[name]
    if (count === undefined && LATER_NAMES.includes(name)) continue
    if (!isCount(count)) return undefined
    found[name] = count
  }
  return found
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0
}

/** Whether a value that another program wrote is a list of samples by bucket. */
export function isTimes(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.length <= CONNECT_TIMES_MS.length + 1 && value.every(isCount)
}
