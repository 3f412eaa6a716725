/**
 * Probes this node's gateways over the overlay, and answers theirs: a gateway node that does not answer any more gets
 * no traffic from this node, as long as another one is left. One that has never answered is used as it was before: some
 * firewall may keep the probes away.
 */
import { Prober, type MeasuredPeer } from '../../kernel/probing/prober.ts'
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
  /** Called at once when a gateway becomes silent or answers again. */
  readonly onChange: () => void
}

const PROBING = { missesUntilDoubt: 4, downAfterMs: 1500, answersUntilUp: 2 }
const LOOK_MS = 2000
/** Traffic of the overlay counts for so long. */
const BUSY_MS = 10_000
/** Probes that are on their way between two readings. */
const SPARE_PACKETS = 4

export class GatewayProbes {
  readonly #deps: GatewayProbesDeps
  #prober: Prober | undefined
  #stop: () => void = () => undefined
  #seen: { readonly packets: number; readonly probes: number } | undefined
  #busyAtMs = -Infinity

  constructor(deps: GatewayProbesDeps) {
    this.#deps = deps
  }

  /** The nodes to be probed from now on, from that address of this node. None: nothing is open. */
  setNodes(address: string, nodes: readonly ProbedNode[]): void {
    if (this.#prober?.address !== address || nodes.length === 0) this.close()
    if (nodes.length === 0) return
    this.#prober ??= this.#start(address)
    this.#prober.setPeers(
      nodes.map(({ node, address: at, answersOnly }) => ({ key: node, address: at, number: 0, answersOnly })),
    )
    this.#count()
  }

  /** Names of gateway nodes that answered before, and do not now. */
  silent(): ReadonlySet<string> {
    const peers = [...(this.#prober?.health() ?? new Map<string, MeasuredPeer>())]
    return new Set(peers.filter(([, { state, doubted }]) => state === 'down' || doubted).map(([node]) => node))
  }

  close(): void {
    this.#stop()
    this.#prober = undefined
    this.#count()
  }

  #start(address: string): Prober {
    const { clock, logger, metrics, openSocket } = this.#deps
    const change = (node: string, text: string): void => {
      logger.info(text, { gateway: node })
      this.#count()
      this.#deps.onChange()
    }
    const prober = new Prober(
      {
        clock,
        logger,
        openSocket,
        count: (what) => metrics.gatewayProbes.inc({ what }),
        onTransition: ({ key }, from, to) => {
          if (from !== 'connecting') change(key, to === 'up' ? 'gateway answers over the overlay' : 'gateway is down')
        },
        onDoubt: ({ key }, doubted) => change(key, doubted ? 'gateway is silent' : 'gateway answers again'),
        isBusy: () => clock.monotonic() - this.#busyAtMs < BUSY_MS,
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
    this.#deps.metrics.silentGateways.set(this.silent().size)
  }
}
