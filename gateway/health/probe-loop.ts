/**
 * Sends probes to the far gateways of one lane and answers theirs, through one socket bound to the lane address, over
 * whichever device leads there. Every packet is checked: only a peer's lane address and port, only whole probes of the
 * one who asks, only answers that wait. A question has the lane number of who asks, and its answer repeats it.
 *
 * A gateway process that is restarted, or has died, answers nothing, while its kernel carries traffic as before. So
 * a known peer that is silent is also knocked at (ProbeSocket.knock): if its kernel answers, the lane is not down.
 */
import { LANE_PROBE_PORT } from '../../model/kernel-ids.ts'
import type { ConnectionState } from '../../model/objects.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { messageOf } from '../../runtime/thrown.ts'
import type { GatewayMetrics } from '../metrics.ts'
import { Knocks } from './knocks.ts'
import { PeerHealth, type PeerHealthInit } from './lane-health.ts'
import { type Probe, decodeProbe, encodeProbe } from './probe-packet.ts'
import type { OpenProbeSocket, ProbeSocket } from './probe-socket.ts'
import { type ProbeFigures, ProbeStats } from './probe-stats.ts'
import { type PeerHealthView, healthKey } from '../world.ts'

export interface LaneProberDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: GatewayMetrics
  readonly openSocket: OpenProbeSocket
  readonly onTransition: (peer: ProbedPeer, from: ConnectionState, to: ConnectionState) => void
}

export interface LaneProberInit extends PeerHealthInit {
  readonly lane: number
  /** Own lane address. */
  readonly address: string
  readonly intervalMs: number
}

export interface ProbedPeer {
  readonly cluster: string
  readonly remoteLane: number
  readonly laneAddress: string
  /** Another one at the same address: another gateway has taken the lane over. */
  readonly identity?: string
}

export type MeasuredHealth = PeerHealthView & {
  readonly figures: ProbeFigures
  /** The far gateway's process does not answer, but its kernel does. */
  readonly kernelOnly: boolean
}

interface PeerEntry {
  peer: ProbedPeer
  readonly health: PeerHealth
  readonly stats: ProbeStats
  sequence: number
  /** In this interval: by a probe, or by the kernel alone. */
  answered: 'no' | 'probe' | 'kernel'
  /** The last interval was answered by the kernel alone. */
  kernelOnly: boolean
  /** In this interval it was asked beside the beat. */
  askedAtOnce: boolean
  readonly knocks: Knocks
}

const REOPEN_MS = 1000

function keyOf({ remoteLane, cluster }: ProbedPeer): string {
  return healthKey(remoteLane, cluster)
}

export class LaneProber {
  readonly #deps: LaneProberDeps
  readonly #init: LaneProberInit
  readonly #session: number
  readonly #peers = new Map<string, PeerEntry>()
  #socket: ProbeSocket | undefined
  #reopenAtMs = 0
  #problem: string | undefined

  constructor(deps: LaneProberDeps, init: LaneProberInit) {
    this.#deps = deps
    this.#init = init
    this.#session = Math.floor(deps.clock.random() * 0x1_0000_0000)
  }

  get address(): string {
    return this.#init.address
  }

  /** Why nothing can be probed, in words; undefined where it can, as far as is known. */
  get problem(): string | undefined {
    return this.#problem
  }

  /** Peers from now on; those that stay keep their state. New ones that are in `up`, by healthKey(), start as up. */
  setPeers(peers: readonly ProbedPeer[], up: ReadonlySet<string> = new Set()): void {
    const wanted = new Map(peers.map((peer) => [peer.laneAddress, peer]))
    for (const [address, entry] of this.#peers) {
      if (wanted.get(address)?.cluster === entry.peer.cluster) continue
      entry.knocks.stop()
      this.#peers.delete(address)
    }
    for (const peer of peers) {
      const known = this.#peers.get(peer.laneAddress)
      if (known !== undefined) {
        const isAnother = known.peer.identity !== peer.identity
        known.peer = peer
        // It waits for a word from here: until now nothing of it was taken.
        if (isAnother) this.#askAtOnce(known)
        continue
      }
      this.#peers.set(peer.laneAddress, this.#newPeer(peer, up.has(keyOf(peer))))
    }
  }

  /** By healthKey(). */
  health(): Map<string, MeasuredHealth> {
    return new Map(
      [...this.#peers.values()].map(({ peer, health, stats, kernelOnly }) => [
        keyOf(peer),
        { state: health.state.is, sinceMs: health.state.sinceMs, figures: stats.figures(), kernelOnly },
      ]),
    )
  }

  /** Probes every interval until the signal. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        this.#tickSafely()
        await this.#deps.clock.sleep(this.#init.intervalMs, signal)
      }
    } catch (error) {
      if (!signal.aborted) throw error
    } finally {
      for (const entry of this.#peers.values()) entry.knocks.stop()
      this.#socket?.close()
      this.#socket = undefined
    }
  }

  #newPeer(peer: ProbedPeer, startsUp: boolean): PeerEntry {
    const { clock } = this.#deps
    const onTransition = (from: ConnectionState, to: ConnectionState): void => {
      this.#deps.onTransition(peer, from, to)
    }
    const health = new PeerHealth({ clock, onTransition }, { ...this.#init, startsUp })
    return {
      peer,
      health,
      stats: new ProbeStats(),
      sequence: 0,
      answered: 'no',
      kernelOnly: false,
      askedAtOnce: false,
      knocks: new Knocks(),
    }
  }

  /** One bad interval must not be the last: without probes, a dead lane would stay up for ever. */
  #tickSafely(): void {
    try {
      this.#tick()
    } catch (error) {
      const text = messageOf(error)
      this.#deps.logger.error('an interval of probing failed', {
        lane: this.#init.lane,
        reason: 'RoundFailed',
        why: text,
      })
    }
  }

  #tick(): void {
    this.#openSocket()
    const nowMs = this.#deps.clock.monotonic()
    for (const entry of [...this.#peers.values()]) {
      const { answered, knocks } = entry
      knocks.expire(nowMs)
      if (answered !== 'no') knocks.silenceEnds()
      // The first interval has no probe behind it.
      else if (entry.sequence > 0) entry.health.onMiss(knocks.mayYetAnswer(nowMs, entry.stats.figures()))
      const silent = entry.sequence > 0 && answered !== 'probe' && entry.health.state.is !== 'connecting'
      entry.kernelOnly = answered === 'kernel'
      entry.answered = 'no'
      entry.askedAtOnce = false
      entry.sequence = (entry.sequence + 1) >>> 0
      this.#ask(entry)
      if (silent) this.#knock(entry)
    }
  }

  /** Not in step with the others, and once in an interval. */
  #askAtOnce(entry: PeerEntry): void {
    if (entry.askedAtOnce) return
    entry.askedAtOnce = true
    entry.sequence = (entry.sequence + 1) >>> 0
    this.#ask(entry)
  }

  #ask(entry: PeerEntry): void {
    const { clock, metrics } = this.#deps
    const nowMs = clock.monotonic()
    const sentMicros = BigInt(Math.floor(nowMs * 1000))
    const { lane } = this.#init
    const probe: Probe = { type: 'question', lane, session: this.#session, sequence: entry.sequence, sentMicros }
    entry.stats.onSent(entry.sequence, nowMs)
    this.#socket?.send(encodeProbe(probe), entry.peer.laneAddress, LANE_PROBE_PORT)
    metrics.probesSent.inc({ lane: String(lane) })
  }

  #knock(entry: PeerEntry): void {
    const stop = this.#socket?.knock(entry.peer.laneAddress, LANE_PROBE_PORT, () => {
      // Of those that come in one interval, one counts.
      if (entry.answered !== 'no' || this.#peers.get(entry.peer.laneAddress) !== entry) return
      entry.answered = 'kernel'
      entry.health.onAnswer()
    })
    entry.knocks.add(this.#deps.clock.monotonic(), stop)
  }

  #openSocket(): void {
    const { clock, logger, openSocket } = this.#deps
    if (this.#socket !== undefined || clock.monotonic() < this.#reopenAtMs) return
    const { lane, address } = this.#init
    this.#socket = openSocket(address, LANE_PROBE_PORT, {
      onMessage: (bytes, from) => {
        this.#onMessage(bytes, from)
      },
      onReady: () => {
        this.#problem = undefined
      },
      onError: (error) => {
        const problem = `cannot probe lane ${lane} from ${address}:${LANE_PROBE_PORT}: ${error.message}`
        // It is tried once a second, and logged once.
        if (problem !== this.#problem) {
          logger.warn('probe socket failed; it will be opened again', {
            reason: 'ProbeSocketFailed',
            lane,
            why: problem,
          })
        }
        this.#problem = problem
        this.#socket = undefined
        this.#reopenAtMs = clock.monotonic() + REOPEN_MS
      },
    })
  }

  #onMessage(bytes: Buffer, from: { readonly address: string; readonly port: number }): void {
    const { metrics, clock } = this.#deps
    const lane = String(this.#init.lane)
    const entry = this.#peers.get(from.address)
    const probe = decodeProbe(bytes)
    const asks = probe?.type === 'question' ? entry?.peer.remoteLane : this.#init.lane
    if (entry === undefined || from.port !== LANE_PROBE_PORT || probe === undefined || probe.lane !== asks) {
      metrics.probesIgnored.inc({ lane })
      return
    }
    if (probe.type === 'question') {
      this.#socket?.send(encodeProbe({ ...probe, type: 'answer' }), from.address, from.port)
      // What came out of the lane says that the way is open, sooner than the next beat would.
      if (entry.health.state.is === 'connecting') this.#askAtOnce(entry)
      return
    }
    if (probe.session !== this.#session || !entry.stats.onAnswer(probe.sequence, clock.monotonic())) {
      metrics.probesIgnored.inc({ lane })
      return
    }
    metrics.probesAnswered.inc({ lane })
    entry.answered = 'probe'
    entry.health.onAnswer()
  }
}
