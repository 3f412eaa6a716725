/** The metrics of the DNS server. The hot path counts in a plain array, which flush() passes on once a second. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import { RCODE, TYPE_A, TYPE_AAAA, TYPE_ANY, TYPE_NS, TYPE_SOA, TYPE_SRV, TYPE_TXT } from '../message/message.ts'

const TYPE_NAMES: readonly (readonly [number, string])[] = [
  [TYPE_A, 'A'],
  [TYPE_AAAA, 'AAAA'],
  [TYPE_SRV, 'SRV'],
  [TYPE_TXT, 'TXT'],
  [TYPE_NS, 'NS'],
  [TYPE_SOA, 'SOA'],
  [12, 'PTR'],
  [65, 'HTTPS'],
  [TYPE_ANY, 'ANY'],
]
const OTHER_TYPE = TYPE_NAMES.length
const RCODE_NAMES: Readonly<Record<number, string>> = {
  [RCODE.noError]: 'NOERROR',
  [RCODE.formErr]: 'FORMERR',
  [RCODE.servFail]: 'SERVFAIL',
  [RCODE.nxDomain]: 'NXDOMAIN',
  [RCODE.notImp]: 'NOTIMP',
  [RCODE.refused]: 'REFUSED',
  [RCODE.badVers]: 'BADVERS',
}
const RCODES = RCODE.badVers + 1
/** Row of each type below 256. All other types count as `other`. */
const TYPE_ROWS = Uint8Array.from({ length: 256 }, (_, type) => {
  const row = TYPE_NAMES.findIndex(([number]) => number === type)
  return row < 0 ? OTHER_TYPE : row
})
const LATENCY_BUCKETS = [0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3]

/** Why a query for another name is not forwarded. */
export type NotForwarded = Extract<
  ReasonCode,
  'client_not_own' | 'client_places' | 'client_rate' | 'overloaded' | 'loop'
>
export type ForwardResult = 'answered' | 'failed' | NotForwarded
export type DropReason = Extract<
  ReasonCode,
  'not_a_query' | 'no_source_port' | 'socket_error' | 'connection_limit' | 'response_rate'
>

export interface DnsMetrics {
  /** Fast enough to call for every packet. */
  answered(type: number, rcode: number): void
  dropped(reason: DropReason): void
  /** An answer was reduced to its question, so that the client retries over TCP. */
  cut(): void
  forwarded(result: ForwardResult, seconds: number): void
  /** Time from a packet to its answer, for one packet in 64. */
  took(seconds: number): void
  /** Passes on what answered() has counted, and sets the gauges. */
  flush(state: { readonly services: number; readonly kept: number; readonly synced: boolean }): void
}

/** Keeps nothing. With it, dnsMetrics() runs the same code as in service, so that code compiled for one fits the other. */
export const DISCARDING: Metrics = {
  counter: () => ({ inc: () => undefined, remove: () => undefined }),
  gauge: () => ({ set: () => undefined, reset: () => undefined }),
  histogram: () => ({ observe: () => undefined }),
  text: () => Promise.resolve(''),
}

export function dnsMetrics(metrics: Metrics): DnsMetrics {
  const queries = metrics.counter({
    name: 'sealane_dns_queries_total',
    help: 'Queries answered, by question type and response code; forwarded queries are counted separately',
    labels: ['type', 'rcode'],
  })
  const dropped = metrics.counter({
    name: 'sealane_dns_dropped_total',
    help: 'Packets and connections that got no answer, by reason',
    labels: ['reason'],
  })
  const cut = metrics.counter({
    name: 'sealane_dns_cut_answers_total',
    help: 'Answers truncated by the rate limit because too many similar ones went to one network; as many were dropped',
  })
  const seconds = metrics.histogram({
    name: 'sealane_dns_answer_seconds',
    help: 'Time from a packet to its answer, sampled: one packet in 64',
    buckets: LATENCY_BUCKETS,
  })
  const forwarded = metrics.counter({
    name: 'sealane_dns_forwarded_total',
    help: 'Queries for names outside the clusterset, by result: the answer of the upstreams, or why none was asked',
    labels: ['result'],
  })
  const notForwarded = metrics.counter({
    name: 'sealane_dns_not_forwarded_total',
    help: 'Queries for names outside the clusterset that were not forwarded, by reason',
    labels: ['reason'],
  })
  const forwardSeconds = metrics.histogram({
    name: 'sealane_dns_forward_seconds',
    help: 'Response time of an upstream',
    buckets: LATENCY_BUCKETS,
  })
  const services = metrics.gauge({ name: 'sealane_dns_services', help: 'Services that the DNS answers' })
  const kept = metrics.gauge({ name: 'sealane_dns_kept_answers', help: 'Answers that are cached as bytes' })
  const synced = metrics.gauge({ name: 'sealane_dns_synced', help: '1 once all services have been read' })

  const counts = new Float64Array((OTHER_TYPE + 1) * RCODES)
  return {
    answered: (type, rcode) => {
      const cell = (type < 256 ? (TYPE_ROWS[type] ?? OTHER_TYPE) : OTHER_TYPE) * RCODES + rcode
      counts[cell] = (counts[cell] ?? 0) + 1
    },
    dropped: (reason) => dropped.inc({ reason }),
    cut: () => cut.inc(),
    forwarded: (result, took) => {
      forwarded.inc({ result })
      if (result === 'answered') forwardSeconds.observe(took)
      else if (result !== 'failed') notForwarded.inc({ reason: result })
    },
    took: (value) => seconds.observe(value),
    flush: (state) => {
      for (const [cell, count] of counts.entries()) {
        if (count === 0) continue
        const type = TYPE_NAMES[Math.floor(cell / RCODES)]?.[1] ?? 'other'
        queries.inc({ type, rcode: RCODE_NAMES[cell % RCODES] ?? 'other' }, count)
      }
      counts.fill(0)
      services.set(state.services)
      kept.set(state.kept)
      synced.set(state.synced ? 1 : 0)
    },
  }
}
