/**
 * Probes this node's gateways over the overlay, and answers theirs: a gateway node that does not answer any more gets
 * no traffic from this node, as long as another one is left. A gateway node probes all nodes: what is for one that does
 * not answer it hands to another gateway node. One that has never answered is used as it was before: some firewall may
 * keep the probes away.
 */
import { Prober, type MeasuredPeer, type ProbedPeer } from '../../kernel/probing/prober.ts'
import type { OpenProbeSocket } from '../../kernel/probing/probe-socket.ts'
import type { DevicePackets } from '../../kernel/tuning/device-packets.ts'
import { OVERLAY_PROBE_PORT, VXLAN_DEVICE } from '../../model/kernel-ids.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { RouteAgentMetrics } from '../metrics.ts'
import type { ProbedNode } from '../routes/plan-probe-routes.ts'

export interface GatewayProbesDeps {
  readonly clock: Clock
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly metrics: RouteAgentMetrics
  readonly openSocket: OpenProbeSocket
  readonly devicePackets: DevicePackets
  /** Called at once when a node becomes silent or answers again. */
  readonly onChange: () => void
}

const PROBING = { missesUntilDoubt: 4, downAfterMs: 1500, answersUntilUp: 2 }
const LOOK_MS = 2000
/** Traffic of the overlay counts for so long. */
const BUSY_MS = 10_000
/** Probes that are on their way between two readings. */
const SPARE_PACKETS = 4
/** A gateway node of more nodes than these asks those that are no gateways at the slow pace: that is not for nothing. */
const MOST_ASKED_QUICKLY = 64

interface ProbedOverlay extends ProbedPeer {
  readonly isGateway: boolean
}

export class GatewayProbes {
  readonly #deps: GatewayProbesDeps
  #prober: Prober<ProbedOverlay> | undefined
  #nodes: ReadonlyMap<string, ProbedNode> = new Map()
  #stop: () => void = () => undefined
  #seen: { readonly packets: number; readonly probes: number } | undefined
  #busyAtMs = -Infinity

  constructor(deps: GatewayProbesDeps) {
    this.#deps = deps
  }

  /** The nodes to be probed from now on, from that address of this node. None: nothing is open. */
  setNodes(address: string, nodes: readonly ProbedNode[]): void {
    if (this.#prober?.address !== address || nodes.length === 0) this.close()
    this.#nodes = new Map(nodes.map((one) => [one.node, one]))
    if (nodes.length === 0) return
    this.#prober ??= this.#start(address)
    this.#prober.setPeers(
      nodes.map(({ node, address: at, isGateway }) => ({ key: node, address: at, number: 0, isGateway })),
    )
    this.#count()
  }

  /** Names of nodes that answered before, and do not now. */
  silent(): ReadonlySet<string> {
    const peers = [...(this.#prober?.health() ?? new Map<string, MeasuredPeer>())]
    return new Set(peers.filter(([, { state, doubted }]) => state === 'down' || doubted).map(([node]) => node))
  }

  close(): void {
    this.#stop()
    this.#prober = undefined
    this.#count()
  }

  #start(address: string): Prober<ProbedOverlay> {
    const { clock, logger, metrics, openSocket } = this.#deps
    const change = ({ key: node, isGateway }: ProbedOverlay, text: string): void => {
      logger.info(`${isGateway ? 'gateway' : 'node'} ${text}`, { node })
      this.#count()
      this.#deps.onChange()
    }
    const prober = new Prober<ProbedOverlay>(
      {
        clock,
        logger,
        openSocket,
        count: (what) => metrics.gatewayProbes.inc({ what }),
        onTransition: (peer, from, to) => {
          if (from !== 'connecting') change(peer, to === 'up' ? 'answers over the overlay' : 'is down')
        },
        onDoubt: (peer, doubted) => change(peer, doubted ? 'is silent' : 'answers again'),
        isBusy: ({ isGateway }) => {
          const isQuick = isGateway || this.#nodes.size <= MOST_ASKED_QUICKLY
          return isQuick && clock.monotonic() - this.#busyAtMs < BUSY_MS
        },
      },
      { ...PROBING, name: 'the overlay', number: 0, address, port: OVERLAY_PROBE_PORT },
    )
    const stopping = new AbortController()
    void prober.run(stopping.signal)
    let cancel = this.#lookIn(LOOK_MS, (next) => (cancel = next))
    this.#stop = () => {
      stopping.abort()
      cancel()
      this.#stop = () => undefined
    }
    return prober
  }

  /** Looks for traffic time and again; gives each timer's end to `next`. */
  #lookIn(ms: number, next: (cancel: () => void) => void): () => void {
    return this.#deps.clock.setTimer(ms, () => {
      void this.#look()
      next(this.#lookIn(ms, next))
    })
  }

  async #look(): Promise<void> {
    const packets = await this.#deps.devicePackets(VXLAN_DEVICE)
    const peers: MeasuredPeer[] = [...(this.#prober?.health().values() ?? [])]
    const probes = peers.reduce((sum, peer) => sum + peer.probes, 0)
    const { clock } = this.#deps
    const before = this.#seen
    this.#seen = packets === undefined ? undefined : { packets, probes }
    if (packets === undefined || before === undefined) return
    const isMore = packets - before.packets > probes - before.probes + SPARE_PACKETS
    if (isMore && probes >= before.probes) this.#busyAtMs = clock.monotonic()
  }

  #count(): void {
    const silent = [...this.silent()].filter((node) => this.#nodes.get(node)?.isGateway === true)
    this.#deps.metrics.silentGateways.set(silent.length)
  }
}
