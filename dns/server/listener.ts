/**
 * One listen address: UDP and TCP on the same port. An address that the node does not have yet (such as that of a
 * bridge that is created later) is retried until it exists. If the port is taken, the start fails with a clear message,
 * unless several nodes run this server.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  type DnsConfig,
  type DnsMetrics,
  type DropReason,
  type SocketAddress,
  formatSocketAddress,
} from '../config/config.ts'
import type { Clients } from '../clients/clients.ts'
import type { Pipeline } from './pipeline.ts'
import { type Mmsg, openMmsg } from './datagram-slots.ts'
import { type PortGroup, openPortGroup } from './port-group.ts'
import { openTcp } from './tcp-server.ts'
import { openUdp } from './udp-server.ts'

export class ListenError extends UserError {
  readonly code: string
  constructor(code: string, message: string, init: { readonly cause: unknown }) {
    super(message, init)
    this.name = 'ListenError'
    this.code = code
  }
}

export interface ListenerDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<DnsMetrics, 'dropped' | 'took'>
  /** Answers the queries. */
  readonly pipeline: Pick<Pipeline, 'answer'>
  readonly clients: Clients
}

export interface Listener {
  /** The requested address with the actual port. */
  readonly at: SocketAddress
  /** True if many datagrams are read with one system call. */
  readonly isBatched: boolean
  /** From now on, new queries go to another process on the same port, if there is one. */
  passOn(): void
  close(): Promise<void>
}

export type ListenerConfig = Pick<
  DnsConfig,
  'batch' | 'reusePort' | 'maxConnections' | 'idleTimeoutMs' | 'listenRetryMs' | 'maxForwards' | 'spread'
>

const MAX_FREE_PORT_TRIES = 20

interface OpenInit {
  readonly listen: SocketAddress
  readonly config: ListenerConfig
  readonly mmsg: Mmsg | undefined
  readonly group: PortGroup | undefined
}

/** Resolves when both sockets are open. Rejects with ListenError, or with the reason of the signal. */
export async function openListener(
  deps: ListenerDeps,
  init: { readonly listen: SocketAddress; readonly config: ListenerConfig },
  signal: AbortSignal,
): Promise<Listener> {
  const { listen, config } = init
  const mmsg = config.batch ? await openMmsg() : undefined
  const group = config.reusePort ? await openPortGroup() : undefined
  let reported = ''
  for (let attempt = 0; ; attempt += 1) {
    signal.throwIfAborted()
    try {
      return await openBoth(deps, { ...init, mmsg, group })
    } catch (error) {
      if (!(error instanceof ListenError)) throw error
      // The free port that UDP received may be taken for TCP: try another one.
      if (error.code === 'EADDRINUSE' && listen.port === 0 && attempt < MAX_FREE_PORT_TRIES) continue
      if (!waitsFor(error.code, config)) throw error
      if (error.code !== reported) report(deps.logger, error, init)
      reported = error.code
    }
    await deps.clock.sleep(config.listenRetryMs, signal)
  }
}

/**
 * What bind() and socket() say of an address that the node lacks: the latter on a kernel that was started without IPv6
 * (ipv6.disable=1), where the other addresses are served as ever.
 */
const MISSING: ReadonlySet<string> = new Set(['EADDRNOTAVAIL', 'EAFNOSUPPORT'])

/** Whether to wait until an address can be opened that fails with this code, instead of ending the process. */
export function waitsFor(code: string, { spread }: Pick<ListenerConfig, 'spread'>): boolean {
  return MISSING.has(code) || (spread && code === 'EADDRINUSE')
}

function report(logger: Logger, error: ListenError, init: { listen: SocketAddress; config: ListenerConfig }): void {
  const listen = formatSocketAddress(init.listen)
  const note = `${error.message}; waiting for it`
  if (error.code === 'EADDRINUSE') logger.warn(note, { reason: 'ListenPortTaken', listen })
  // Of several nodes, most lack the address.
  else if (init.config.spread) logger.info(note, { listen })
  else logger.warn(note, { reason: 'ListenAddressMissing', listen })
}

/** One packet in 64 is timed: reading the clock twice is expensive compared with a kept answer. */
const SAMPLE_MASK = 63

/** Passes each packet to the pipeline, and times some until they are answered or forwarded. */
export function sampled({
  clock,
  metrics,
  pipeline,
}: Pick<ListenerDeps, 'clock' | 'pipeline'> & {
  readonly metrics: Pick<DnsMetrics, 'took'>
}): ListenerDeps['pipeline'] {
  let packets = 0
  return {
    answer: (query, transport, client) => {
      packets = (packets + 1) & SAMPLE_MASK
      if (packets !== 0) return pipeline.answer(query, transport, client)
      const startedMs = clock.monotonic()
      const reply = pipeline.answer(query, transport, client)
      metrics.took((clock.monotonic() - startedMs) / 1000)
      return reply
    },
  }
}

async function openBoth(deps: ListenerDeps, { listen, config, mmsg, group }: OpenInit): Promise<Listener> {
  const { clock, logger, metrics, clients } = deps
  const pipeline = sampled(deps)
  const onDropped = (reason: DropReason, error?: Error): void => {
    metrics.dropped(reason)
    if (error === undefined) return
    logger.debug('socket error', { listen: formatSocketAddress(listen), error: error.message })
  }
  const { reusePort } = config
  const udp = await openUdp({ listen, reusePort, mmsg, pipeline, clients, onDropped }).catch((error: unknown) => {
    throw listenError(error, listen, 'udp')
  })
  const at = { address: listen.address, port: udp.port }
  try {
    const tcp = await openTcp({ ...config, clock, listen: at, pipeline, clients, onDropped })
    return {
      at,
      isBatched: udp.isBatched,
      passOn: () => {
        const sockets = group?.passOn(at) ?? 0
        logger.debug('new queries go to other processes on the port', { listen: formatSocketAddress(at), sockets })
      },
      close: async () => {
        await Promise.all([udp.close(), tcp.close()])
      },
    }
  } catch (error) {
    await udp.close()
    throw listenError(error, listen, 'tcp')
  }
}

const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another process uses the port',
  EADDRNOTAVAIL: 'this node does not have the address',
  EAFNOSUPPORT: 'the kernel of this node has no IPv6',
  EACCES: 'not allowed: ports below 1024 need root or CAP_NET_BIND_SERVICE',
}

function listenError(error: unknown, listen: SocketAddress, transport: 'udp' | 'tcp'): unknown {
  if (!(error instanceof Error) || !('code' in error)) return error
  const code = String(error.code)
  const reason = REASONS[code] ?? error.message
  return new ListenError(code, `dns: cannot listen on ${formatSocketAddress(listen)}/${transport}: ${reason}`, {
    cause: error,
  })
}
