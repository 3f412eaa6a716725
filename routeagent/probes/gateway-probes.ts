/**
 * Probes the gateway nodes over the overlay, and answers their probes. A gateway node that stops answering gets no
 * traffic from this node while another one is left. A gateway node probes all nodes, and forwards packets for a node
 * that does not answer to another gateway node. A node that has never answered is used as before, because a firewall
 * may drop the probes. A gateway node that has never answered is used only while no other one answers: it may have been
 * lost before this process started.
 */
import { type MeasuredPeer, type OpenProbeSocket, type ProbedPeer, Prober } from '../../kernel/probing/probing.ts'
import type { DevicePackets } from '../../kernel/tuning/tuning.ts'
import { OVERLAY_PROBE_PORT, VXLAN_DEVICE } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Failure } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { RouteAgentMetrics } from '../world/world.ts'
import type { ProbedNode } from './plan-probe-routes.ts'

export interface GatewayProbesDeps {
  readonly clock: Clock
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly metrics: RouteAgentMetrics
  readonly openSocket: OpenProbeSocket
  readonly devicePackets: DevicePackets
  /** Called at once when a node becomes silent or answers again. */
  readonly onChange: () => void
  /** Called when the status of a node may have changed and its routes stay the same. */
  readonly onNodeState: () => void
}

/** What the probes of a node show. */
export interface ProbedNodeState {
  /**
   * `asked`: not known yet. `unheard`: it has not answered for UNHEARD_MS. `silent`: it answered before and does not
   * now.
   */
  readonly state: 'asked' | 'unheard' | 'answers' | 'silent'
  readonly isGateway: boolean
}

/** Time until a node counts as unheard: it may be starting, or its process may be of an earlier release. */
const UNHEARD_MS = 10_000
const PROBING = { missesUntilSuspect: 4, downAfterMs: 1500, answersUntilUp: 2 }
/** Time until a gateway that has never answered comes after those that answer. */
const LATE_MS = PROBING.downAfterMs
const LOOK_MS = 2000
/** How long the overlay counts as busy after traffic. */
const BUSY_MS = 10_000
/** Probes that are under way between two readings. */
const SPARE_PACKETS = 4
/** With more nodes than this, a gateway node probes nodes that are no gateways at the idle rate, to limit the load. */
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
  /** At the last check: how many nodes were unheard, which gateways were late, and what prevented the probes. */
  #said = '0  '

  constructor(deps: GatewayProbesDeps) {
    this.#deps = deps
  }

  /** Sets the nodes to probe, and the address of this node to probe from. Without nodes, no socket is open. */
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

  /** Names of nodes that answered before and do not now. */
  silent(): ReadonlySet<string> {
    return new Set([...this.nodeStates()].filter(([, { state }]) => state === 'silent').map(([node]) => node))
  }

  /**
   * Names of gateway nodes that have not answered this process for LATE_MS, while another one answers. They may work,
   * so nothing is reported about them.
   */
  late(): ReadonlySet<string> {
    const now = this.#deps.clock.monotonic()
    const gateways = [...(this.#prober?.health() ?? [])].filter(([node]) => this.#nodes.get(node)?.isGateway === true)
    if (!gateways.some(([, peer]) => this.#stateOf(peer) === 'answers')) return new Set()
    const isLate = ({ state, sinceMs }: MeasuredPeer): boolean => state === 'connecting' && now - sinceMs >= LATE_MS
    return new Set(gateways.filter(([, peer]) => isLate(peer)).map(([node]) => node))
  }

  /** The state of each probed node, by name. */
  nodeStates(): ReadonlyMap<string, ProbedNodeState> {
    const peers = [...(this.#prober?.health() ?? new Map<string, MeasuredPeer>())]
    return new Map(
      peers.map(([node, peer]) => [
        node,
        { state: this.#stateOf(peer), isGateway: this.#nodes.get(node)?.isGateway === true },
      ]),
    )
  }

  /** Why probing is not possible, as text. Undefined if it is. */
  problem(): Failure | undefined {
    return this.#prober?.problem
  }

  #stateOf({ state, suspected, sinceMs }: MeasuredPeer): ProbedNodeState['state'] {
    if (state === 'down' || suspected) return 'silent'
    if (state === 'up') return 'answers'
    return this.#deps.clock.monotonic() - sinceMs >= UNHEARD_MS ? 'unheard' : 'asked'
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
          // The first answer of a node changes no route, but the status.
          if (from === 'connecting') this.#deps.onNodeState()
          else change(peer, to === 'up' ? 'answers over the overlay' : 'is down')
        },
        onSuspect: (peer, suspected) => change(peer, suspected ? 'answers no probes' : 'answers probes again'),
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

  /** Checks for traffic at intervals. Passes the function that cancels each following timer to `next`. */
  #lookIn(ms: number, next: (cancel: () => void) => void): () => void {
    return this.#deps.clock.setTimer(ms, () => {
      void this.#look()
      next(this.#lookIn(ms, next))
    })
  }

  async #look(): Promise<void> {
    this.#count()
    const unheard = [...this.nodeStates().values()].filter(({ state }) => state === 'unheard').length
    const said = `${unheard} ${[...this.late()].join()} ${this.problem()?.message ?? ''}`
    if (said !== this.#said) this.#deps.onNodeState()
    this.#said = said
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
    const all = [...this.nodeStates().values()]
    const { silentGateways, silentNodes } = this.#deps.metrics
    silentGateways.set(all.filter(({ state, isGateway }) => isGateway && state === 'silent').length)
    for (const state of ['silent', 'unheard'] as const)
      silentNodes.set(all.filter((one) => one.state === state).length, { state })
  }
}
