/**
 * Samples of the packets that the access rules refuse: who called whom, at which port, and why. The kernel limits and
 * copies them (access-chains.ts); nothing else of a packet is read. The last ones are kept for `sealane show denied`.
 */
import type { LoggedPacket, PacketLog } from '../../kernel/nfnetlink/nfnetlink.ts'
import type { Nft } from '../../kernel/nft/nft.ts'
import { containsAddress, familyOf, parseAddress, parsePrefix } from '../../model/addresses/addresses.ts'
import { type EndpointSlice, LABEL_K8S_SERVICE_NAME, LABEL_SOURCE_CLUSTER, NFLOG_GROUP } from '../../model/model.ts'
import { type Clock, untilDone } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { ACCESS_DROP_REASONS, type AccessDropReason, type RouteAgentCaches, addressFamily } from '../world/world.ts'
import { sampleProbe } from './nft-parts.ts'

/** The sender of a packet, or whom it was for. */
export interface SampledEnd {
  readonly address: string
  /** The other cluster that has the address. */
  readonly cluster?: string
  /** The namespace of a pod of this cluster. */
  readonly namespace?: string
  /** `namespace/name`, where an endpoint of this cluster has the address. */
  readonly service?: string
  /** Its name. */
  readonly pod?: string
}

/** One refused packet, from another cluster or to one. */
export interface DeniedSample {
  /** RFC 3339. */
  readonly at: string
  readonly reason: AccessDropReason
  readonly from: SampledEnd
  readonly to: SampledEnd
  /** As LoggedPacket.protocol. */
  readonly protocol: string
  readonly port?: number
}

export const MAX_DENIED_SAMPLES = 200
/** The rules limit the samples too, but another program may log to our group. */
const MAX_A_SECOND = 10
const RETRY = { minMs: 1000, maxMs: 60_000 }

export interface DeniedSamplesDeps {
  readonly packetLog: PacketLog
  /** One for each family. */
  readonly nfts: readonly Nft[]
  readonly slices: RouteAgentCaches['slices']
  readonly clock: Clock
  readonly logger: Pick<Logger, 'info'>
  /** Prefixes of each other cluster, of the family. */
  readonly callers: (family: 4 | 6) => ReadonlyMap<string, readonly string[]> | undefined
  /** The pod of this node that has the address. Absent: only endpoints of services are known. */
  readonly podAt?: (address: string) => Required<Pick<SampledEnd, 'namespace' | 'pod'>> | undefined
  /** Called when the rules may log from now on. */
  readonly onFollowing: () => void
}

export class DeniedSamples {
  readonly #deps: DeniedSamplesDeps
  readonly #samples: DeniedSample[] = []
  #stop: (() => void) | undefined
  #second = { at: -Infinity, count: 0 }
  #failure: string | undefined

  constructor(deps: DeniedSamplesDeps) {
    this.#deps = deps
  }

  /** This process reads the samples. Otherwise the rules log none. */
  get isFollowing(): boolean {
    return this.#stop !== undefined
  }

  /** The oldest first. */
  list(): readonly DeniedSample[] {
    return [...this.#samples]
  }

  /**
   * Follows the log until the signal. If the kernel has no such log, or an earlier process still follows it, rules drop
   * without samples, and it is tried again at times.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, onFollowing } = this.#deps
    const onFailure = (error: unknown): void => this.#failed(messageOf(error))
    const begin = async (): Promise<void> => {
      await this.#begin(signal)
      onFollowing()
    }
    await untilDone(begin, { clock, backoff: RETRY, onFailure }, signal)
    if (this.isFollowing && !signal.aborted)
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
    this.#stop?.()
    this.#stop = undefined
  }

  // A rule that the kernel does not have would make it refuse the whole table.
  async #begin(signal: AbortSignal): Promise<void> {
    const { packetLog, nfts } = this.#deps
    const stop = await packetLog.follow(NFLOG_GROUP, (packet) => this.#take(packet), signal)
    try {
      for (const nft of nfts) await nft.check(sampleProbe(), signal)
    } catch (error) {
      stop()
      throw error
    }
    this.#stop = stop
  }

  #failed(why: string): void {
    if (why !== this.#failure) this.#deps.logger.info('refused packets are counted, but not sampled', { why })
    this.#failure = why
  }

  #take(packet: LoggedPacket): void {
    const reason = ACCESS_DROP_REASONS.find((one) => one === packet.prefix)
    if (reason === undefined || !this.#isWithinLimit()) return
    const { clock, logger } = this.#deps
    const { source, destination, protocol, port } = packet
    const [caller, called] = [this.#clusterOf(source), this.#clusterOf(destination)]
    const ownAt = (address: string, at?: number) => ({
      ...endpointAt(this.#deps.slices.list(), { address, protocol, port: at }),
      ...this.#deps.podAt?.(address),
    })
    const sample: DeniedSample = {
      at: new Date(clock.now()).toISOString(),
      reason,
      from: { address: source, ...(called !== undefined && caller === undefined ? ownAt(source) : given(caller)) },
      to: { address: destination, ...(called === undefined ? ownAt(destination, port) : given(called)) },
      protocol,
      ...(port === undefined ? {} : { port }),
    }
    this.#samples.push(sample)
    if (this.#samples.length > MAX_DENIED_SAMPLES) this.#samples.shift()
    const { from, to } = sample
    logger.info('a packet from or to another cluster was refused', { reason, from, to, protocol, port })
  }

  #isWithinLimit(): boolean {
    const second = Math.floor(this.#deps.clock.monotonic() / 1000)
    if (second !== this.#second.at) this.#second = { at: second, count: 0 }
    this.#second.count += 1
    return this.#second.count <= MAX_A_SECOND
  }

  #clusterOf(text: string): string | undefined {
    const address = parseAddress(text)
    const callers = this.#deps.callers(familyOf(text)) ?? []
    for (const [id, prefixes] of callers)
      if (prefixes.some((prefix) => containsAddress(parsePrefix(prefix), address))) return id
    return undefined
  }
}

function given(cluster: string | undefined): Pick<SampledEnd, 'cluster'> {
  return cluster === undefined ? {} : { cluster }
}

/** The service of the address, preferably one that has the port too. */
function endpointAt(
  slices: readonly EndpointSlice[],
  {
    address,
    protocol,
    port,
  }: { readonly address: string; readonly protocol: string; readonly port: number | undefined },
): Pick<SampledEnd, 'namespace' | 'service' | 'pod'> {
  const family = addressFamily(familyOf(address))
  let found: Pick<SampledEnd, 'namespace' | 'service' | 'pod'> = {}
  for (const { metadata, addressType, endpoints, ports } of slices) {
    const { namespace = '', labels = {} } = metadata
    const name = labels[LABEL_K8S_SERVICE_NAME]
    if (addressType !== family.slices || name === undefined || labels[LABEL_SOURCE_CLUSTER] !== undefined) continue
    const endpoint = endpoints?.find(({ addresses }) =>
      addresses.some((text) => text === address || family.canonical(text) === address),
    )
    if (endpoint === undefined) continue
    const { targetRef } = endpoint
    const pod = targetRef?.kind === 'Pod' && targetRef.name !== undefined ? { pod: targetRef.name } : {}
    // The pods of a Service are in its namespace.
    const said = { namespace, service: `${namespace}/${name}`, ...pod }
    if (ports?.some((one) => one.port === port && (one.protocol ?? 'TCP').toLowerCase() === protocol) === true)
      return said
    if (found.service === undefined) found = said
  }
  return found
}
