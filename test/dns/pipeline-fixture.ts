/** A pipeline without sockets, and upstreams that never answer. */
import { type Client, type Clients, OWN_PROCESS } from '../../dns/clients/clients.ts'
import { dnsMetrics } from '../../dns/config/metrics.ts'
import { Pipeline, type PipelineDeps } from '../../dns/server/pipeline.ts'
import type { Transport } from '../../dns/message/wire.ts'
import { KeptAnswers } from '../../dns/zone/kept-answers.ts'
import type { ServiceIndex } from '../../dns/zone/service-index.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'

/** Returns a pipeline, which has no upstreams unless `more` contains a forwarder. */
export function newPipeline(index: ServiceIndex, more: Partial<PipelineDeps> = {}): Pipeline {
  return new Pipeline({
    clock: new SystemClock(),
    logger: new CapturingLogger(),
    metrics: dnsMetrics(createMetrics('dns')),
    index,
    kept: new KeptAnswers(index),
    forwarder: undefined,
    signal: new AbortController().signal,
    ...more,
  })
}

/** Treats all clients as clients of this site. */
export const OWN_CLIENTS: Pick<Clients, 'ofText' | 'ofWords'> = {
  ofText: () => OWN_PROCESS,
  ofWords: () => OWN_PROCESS,
}

/** A client whose query arrived over a lane. */
export const STRANGER: Client = { isOwn: false, key: 'stranger', network: 7 }

/** Accepts every question, and never answers. */
export const SILENT_UPSTREAMS: NonNullable<PipelineDeps['forwarder']> = {
  inFlight: 0,
  forward: () => new Promise(() => undefined),
}

/** Returns an immediate answer. Throws when there is none. */
export function answerAtOnce(pipeline: Pipeline, query: Buffer, transport: Transport = 'udp'): Buffer {
  const reply = pipeline.answer(query, transport, OWN_PROCESS)
  if (!Buffer.isBuffer(reply)) throw new Error(reply === undefined ? 'ignored' : 'forwarded')
  return reply
}
