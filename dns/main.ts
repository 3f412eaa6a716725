/** The DNS server of a cluster: answers clusterset.local from the local API, and forwards all other queries. */
import { type ClusterApi, HeardGateways } from '../kubeapi/kubeapi.ts'
import { type TcpProbe, untilAborted } from '../reconcile/reconcile.ts'
import { formatAddress } from '../model/addresses/addresses.ts'
import { type ComponentDeps, interfaceNetworks, probeTcp } from '../runtime/runtime.ts'
import { Clients } from './clients/clients.ts'
import {
  DISCARDING,
  type DnsConfig,
  type DnsMetrics,
  type SocketAddress,
  dnsMetrics,
  formatSocketAddress,
} from './config/config.ts'
import { Forwarder } from './forward/forward.ts'
import { type Listener, Pipeline, giveWay, openListener, untilDue, warmUp } from './server/server.ts'
import { KeptAnswers, ServiceIndex, printZone } from './zone/zone.ts'

export interface DnsDeps extends ComponentDeps {
  readonly api: Pick<ClusterApi, 'cache' | 'read'>
  /** Called with each address once it is open, with the actual port. */
  readonly onListening?: (address: string) => void
  /** Defaults to a real TCP probe. */
  readonly probeTcp?: TcpProbe
}

const FLUSH_MS = 1000

/**
 * Runs until the signal aborts, and a moment longer: queries on their way to the ports are answered, or passed to other
 * processes that share the ports. Rejects with ListenError if a port cannot be opened.
 */
export async function runDns(deps: DnsDeps, config: DnsConfig, signal: AbortSignal): Promise<void> {
  const logger = deps.logger.child({ component: 'dns' })
  const metrics = dnsMetrics(deps.metrics)
  const end = new AbortController()

  const index = new ServiceIndex({
    clusterId: config.clusterId,
    nameServers: nameServers(config),
    serial: Math.floor(deps.clock.now() / 1000),
  })
  const forwarder = config.upstreams.length === 0 ? undefined : newForwarder({ ...deps, logger }, metrics, config)
  const clients = new Clients({ site: index, networks: config.forwardFor, interfaces: interfaceNetworks })
  const kept = new KeptAnswers(index)
  const parts = { clock: deps.clock, logger, index, kept, forwarder, signal: end.signal }
  const pipeline = new Pipeline({ ...parts, metrics })
  const rehearsal = new Pipeline({ ...parts, metrics: dnsMetrics(DISCARDING) })

  const listeners: Listener[] = []
  deps.status.readiness('dns synced', () => (index.synced ? undefined : 'the services have not been read yet'))
  deps.status.readiness('dns listening', () => waitingFor(config, listeners))
  deps.status.readiness('dns staying', () => (signal.aborted ? 'stopping' : undefined))
  deps.status.plan('dns', () => printZone(index, index.services()))

  const gateways = new HeardGateways({
    ...deps,
    logger,
    probeTcp: deps.probeTcp ?? probeTcp,
    heartbeatMs: config.heartbeatMs,
  })
  const unfollow = index.follow(deps.api, gateways)
  const due = whenDue({ ...deps, logger }, { index, rehearsal, config })
  const opens = AbortSignal.any([signal, end.signal])
  const tasks = config.listen.map(async (listen) => {
    await due(listen, opens)
    const listener = await openListener(
      { clock: deps.clock, logger, metrics, pipeline, clients },
      { listen, config },
      opens,
    )
    listeners.push(listener)
    logger.info('listening', { address: formatSocketAddress(listener.at), batch: listener.isBatched })
    deps.onListening?.(formatSocketAddress(listener.at))
  })
  const flush = (): void => {
    metrics.flush({ services: index.size, kept: pipeline.kept, synced: index.synced })
    clients.lookAgain()
  }
  tasks.push(flushMetrics(deps, end.signal, flush), gateways.run(end.signal))
  try {
    await untilReported(tasks, signal)
    await giveWay({ clock: deps.clock, listeners, pipeline }, config)
  } finally {
    unfollow()
    await Promise.all(listeners.map((listener) => listener.close()))
    end.abort()
    await Promise.allSettled(tasks)
  }
}

/** Resolves with the signal, whatever the tasks then do. Rejects with the first task that fails before. */
async function untilReported(tasks: readonly Promise<void>[], signal: AbortSignal): Promise<void> {
  const reported = untilAborted(signal)
  const failing = tasks.map(async (task) => {
    await task.catch((error: unknown) => {
      if (!signal.aborted) throw error
    })
    await reported
  })
  await Promise.race([reported, ...failing])
}

interface Opening {
  readonly index: ServiceIndex
  /** Its answers are not sent and not counted. */
  readonly rehearsal: Pipeline
  readonly config: DnsConfig
}

/**
 * Returns a function that resolves when an address should be opened. Answers are prepared before that, once for all
 * addresses.
 */
function whenDue(
  deps: Pick<DnsDeps, 'clock' | 'logger'>,
  { index, rehearsal, config }: Opening,
): (at: SocketAddress, signal: AbortSignal) => Promise<void> {
  const { clock, logger } = deps
  let warming: Promise<number> | undefined
  return async (at, signal) => {
    await untilDue({ clock, logger, index }, { at, mostMs: config.syncWaitMs }, signal)
    if (!index.synced) return
    warming ??= warmUp({ clock, pipeline: rehearsal, services: index.names(), mostMs: config.warmUpMs }, signal)
    await warming
  }
}

async function flushMetrics(deps: DnsDeps, signal: AbortSignal, flush: () => void): Promise<void> {
  while (!signal.aborted) {
    flush()
    await deps.clock.sleep(FLUSH_MS, signal)
  }
}

function newForwarder(deps: DnsDeps, metrics: DnsMetrics, config: DnsConfig): Forwarder {
  return new Forwarder(
    {
      clock: deps.clock,
      onResult: (result, seconds) => metrics.forwarded(result, seconds),
      onFailure: (upstream, error) =>
        deps.logger.debug('the upstream did not answer', { upstream, error: error.message }),
    },
    {
      upstreams: config.upstreams,
      timeoutMs: config.upstreamTimeoutMs,
      maxInFlight: config.maxForwards,
      clientPerSecond: config.clientForwardsPerSecond,
    },
  )
}

/** Returns the listen addresses that other hosts can also use. */
function nameServers(config: DnsConfig): { a: string[]; aaaa: string[] } {
  const addresses = config.listen.map((listen) => listen.address).filter(({ value }) => value !== 0n)
  const of = (family: 4 | 6): string[] => [
    ...new Set(addresses.flatMap((a) => (a.family === family ? [formatAddress(a)] : []))),
  ]
  return { a: of(4), aaaa: of(6) }
}

function waitingFor(config: DnsConfig, listeners: readonly Listener[]): string | undefined {
  if (config.spread) return undefined
  const open = new Set(listeners.map((listener) => formatAddress(listener.at.address)))
  const missing = config.listen.filter((listen) => !open.has(formatAddress(listen.address)))
  return missing.length === 0 ? undefined : `waiting for ${missing.map(formatSocketAddress).join(', ')}`
}
