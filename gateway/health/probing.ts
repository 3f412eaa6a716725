/** Starts, updates and stops the prober of this node's lane, as planned. */
import {
  type MeasuredPeer,
  type Notice,
  type OpenProbeSocket,
  type ProbedPeer,
  Prober,
} from '../../kernel/probing/probing.ts'
import type { ObjectChange } from '../../kubeapi/kubeapi.ts'
import { type ConnectionState, type Gateway, LANE_PROBE_PORT } from '../../model/model.ts'
import { remoteLaneOf, unansweredClusters } from '../../model/lanes/lanes.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type Failure, messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { linkKey } from '../cable/cable.ts'
import type { LanePlan, PlannedLink } from '../links/links.ts'
import { type GatewayConfig, type GatewayMetrics, clusterOfKey, healthKey, laneLabels } from '../world/world.ts'
import { FlapDamping } from './flap-damping.ts'
import { BusyLinks } from './link-traffic.ts'
import type { SleepRule } from './plan-sleep.ts'
import { type DeviceReading, SleepingLinks } from './sleeping-links.ts'

interface CountedLink {
  readonly cluster: string
  readonly ownLane: number
  readonly remoteLane: number
}

const STATES: readonly ConnectionState[] = ['connecting', 'up', 'down']

/** Counts the changes of state of each link, and removes a link that is gone, because members come and go for years. */
class TransitionCounts {
  readonly #counter: GatewayMetrics['transitions']
  #links: ReadonlyMap<string, CountedLink> = new Map()

  constructor({ transitions }: Pick<GatewayMetrics, 'transitions'>) {
    this.#counter = transitions
  }

  count(link: CountedLink, state: ConnectionState): void {
    this.#counter.inc({ ...labelsOf(link), state })
  }

  /** Takes the existing links, and removes the counts of all others. */
  keep(links: readonly CountedLink[]): void {
    const now = new Map(links.map((link) => [JSON.stringify(labelsOf(link)), link]))
    for (const [key, link] of this.#links) {
      if (now.has(key)) continue
      for (const state of STATES) this.#counter.remove({ ...labelsOf(link), state })
    }
    this.#links = now
  }
}

function labelsOf({ cluster, ...lanes }: CountedLink) {
  return { cluster, ...laneLabels(lanes) }
}

export interface ProbingDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: GatewayMetrics
  readonly openSocket: OpenProbeSocket
  /** Called at once on each change of state. */
  readonly onTransition: () => void
  /** Called at once when a link becomes suspect, or no longer is. */
  readonly onSuspect: () => void
  /** Called at once when a link that is up becomes unanswered, or no longer is. */
  readonly onUnanswered: () => void
  /** Called when the largest packet that passes a link has changed. */
  readonly onSize: () => void
  /** Notices of the far end of the link with this healthKey() about its identity. Prober.onNotice, onReceipt. */
  readonly onNotice?: (key: string, notice: Notice) => boolean
  readonly onReceipt?: (key: string, notice: Notice) => void
}

/** What is known of a link. */
export interface LinkHealth extends MeasuredPeer {
  readonly held: boolean
  /** The link flapped, and is held out of use until then, in milliseconds since 1970. */
  readonly heldUntil?: number
}

interface ProbedLink extends ProbedPeer {
  readonly cluster: string
}

interface RunningProber {
  readonly lane: number
  readonly prober: Prober<ProbedLink>
  readonly stop: () => void
}

export class Probing {
  readonly #deps: ProbingDeps
  readonly #config: GatewayConfig
  readonly #busy: BusyLinks
  readonly #damping: FlapDamping
  readonly #transitions: TransitionCounts
  readonly sleeping: SleepingLinks
  #running: RunningProber | undefined

  constructor(deps: ProbingDeps, config: GatewayConfig) {
    this.#deps = deps
    this.#config = config
    this.#busy = new BusyLinks(deps.clock)
    this.#damping = new FlapDamping({
      clock: deps.clock,
      onRelease: (link) => {
        deps.logger.info('link has stayed up and is used again', { link })
        deps.onTransition()
      },
    })
    this.#transitions = new TransitionCounts(deps.metrics)
    this.sleeping = new SleepingLinks({
      clock: deps.clock,
      logger: deps.logger,
      sleep: (key) => this.#running?.prober.sleep(key),
      wake: (key) => this.#running?.prober.wake(key),
    })
  }

  /**
   * Sets the devices, which all belong to one lane. Known far ends keep their state. New far ends start as up if `up`
   * contains their healthKey().
   */
  setLanes(devices: readonly LanePlan[], up: ReadonlySet<string>): void {
    const [device] = devices
    const address = device === undefined ? undefined : laneAddressOf(device)
    const isSame = this.#running?.lane === device?.ownLane && this.#running?.prober.address === address
    if (!isSame) this.close()
    const links = devices.flatMap((one) => one.links)
    const { ownLane } = device ?? {}
    this.#transitions.keep(links.flatMap((link) => (ownLane === undefined ? [] : [{ ...link, ownLane }])))
    if (device === undefined) return
    this.#running ??= this.#start(device)
    const peers = links.map(probedLink)
    const keys = new Set(peers.map(({ key }) => key))
    this.#running.prober.setPeers(peers, up)
    this.#damping.keep(keys)
    this.sleeping.keep(keys)
  }

  /** These links, by healthKey(), have just been called: Prober.askNew(). */
  called(keys: ReadonlySet<string>): void {
    this.#running?.prober.askNew(keys)
  }

  /** What is known of each far end, by healthKey(). */
  health(): Map<string, LinkHealth> {
    const measured = this.#running?.prober.health() ?? new Map<string, MeasuredPeer>()
    return new Map(
      [...measured].map(([key, peer]) => {
        const heldUntil = this.#damping.heldUntil(key)
        return [key, { ...peer, held: heldUntil !== undefined, ...(heldUntil === undefined ? {} : { heldUntil }) }]
      }),
    )
  }

  /** Sends a notice to the far ends of these links, by healthKey(). */
  notify(keys: ReadonlySet<string>, words: Pick<Notice, 'mark' | 'step'>): void {
    this.#running?.prober.notify(keys, words)
  }

  /** Another gateway of this cluster found that smaller, or larger, packets reach this cluster than before. */
  suspectSize({ cluster, what }: SizeHint): void {
    const keys = [...this.health().keys()].filter((key) => clusterOfKey(key) === cluster)
    this.#running?.prober.suspect(new Set(keys), what)
  }

  /**
   * Takes the present counts of the devices: a link with traffic is probed more often, and one without
   * falls asleep by the rule (sleepRule()).
   */
  measure({ devices, states, before, askedMs }: Omit<DeviceReading, 'after'>, rule: SleepRule | undefined): void {
    const health = this.health()
    this.#busy.look(
      devices.flatMap(({ remoteLane, links }) =>
        links.flatMap((link) => {
          const key = healthKey(remoteLane, link.cluster)
          const [state, peer] = [states.get(remoteLane)?.links.get(linkKey(link)), health.get(key)]
          if (state === undefined || peer === undefined) return []
          return [{ key, bytes: state.rxBytes + state.txBytes, most: peer, least: before.get(key) ?? peer }]
        }),
      ),
    )
    if (rule === undefined) this.sleeping.wakeAll('unwanted')
    else this.sleeping.settle({ devices, states, askedMs, before, after: health }, rule, this.#busy)
  }

  /** Clusters with traffic over a link of this node in the last seconds, as of the last measure(). */
  busyClusters(): readonly string[] {
    return [...new Set(this.#busy.busy().map(clusterOfKey))].sort()
  }

  /** Why the lane cannot be probed, as text. Undefined if it can. */
  problem(): Failure | undefined {
    return this.#running?.prober.problem
  }

  close(): void {
    this.#running?.stop()
    this.#running = undefined
    this.#damping.close()
    this.sleeping.keep(new Set())
  }

  /** A link to this cluster is silent, here or of another gateway. Whether the others are too is to be known soon. */
  hasten(cluster: string): void {
    this.sleeping.wakeCluster(cluster)
    const keys = [...this.health().keys()].filter((key) => clusterOfKey(key) === cluster)
    this.#running?.prober.hasten(new Set(keys))
  }

  #start(device: LanePlan): RunningProber {
    const { ownLane: lane } = device
    const { clock, logger, metrics, openSocket } = this.#deps
    const counters = { sent: metrics.probesSent, answered: metrics.probesAnswered, ignored: metrics.probesIgnored }
    const prober = new Prober<ProbedLink>(
      {
        clock,
        logger,
        openSocket,
        count: (what) => counters[what].inc({ lane: String(lane) }),
        onTransition: ({ key, cluster, number: remoteLane }, from, to) => {
          logger.info('connection changed', { cluster, lane, remoteLane, from, to })
          if (from === 'up' && to === 'down' && this.#damping.onDown(key)) {
            logger.warn('link flaps and is avoided', { reason: 'LinkFlaps', cluster, lane, remoteLane })
          }
          this.#transitions.count({ cluster, ownLane: lane, remoteLane }, to)
          if (to === 'down') this.sleeping.wakeCluster(cluster)
          this.#deps.onTransition()
        },
        onSuspect: ({ cluster, number: remoteLane }, suspected) => {
          logger.info(suspected ? 'link answers no probes' : 'link answers probes again', { cluster, lane, remoteLane })
          if (suspected) this.hasten(cluster)
          this.#deps.onSuspect()
        },
        onUnanswered: ({ cluster, number: remoteLane }, unanswered) => {
          const text = unanswered ? 'new connections avoid a silent link' : 'new connections use the link again'
          logger.info(text, { cluster, lane, remoteLane })
          this.#deps.onUnanswered()
        },
        onNotice: ({ key }, notice) => this.#deps.onNotice?.(key, notice) === true,
        onQuestion: ({ key }) => this.sleeping.onQuestion(key),
        onReceipt: ({ key }, notice) => this.#deps.onReceipt?.(key, notice),
        onSize: ({ cluster, number: remoteLane }) => {
          const sendSize = this.health().get(healthKey(remoteLane, cluster))?.sendSize
          logger.info('path MTU of the link changed', { cluster, lane, remoteLane, octets: sendSize })
          this.#deps.onSize()
        },
        isBusy: ({ key }) => this.#busy.isBusy(key),
      },
      this.#proberInit(device),
    )
    const stopping = new AbortController()
    prober.run(stopping.signal).catch((error: unknown) => {
      logger.error('probing failed and has stopped', { lane, reason: 'RoundFailed', why: messageOf(error) })
    })
    return { lane, prober, stop: () => stopping.abort() }
  }

  #proberInit(device: LanePlan) {
    const { probeIntervalMs, idleProbeIntervalMs, quickProbeMs, missesUntilSuspect } = this.#config
    const { downAfterMs, unansweredAfterMs, calmAfterMs, answersUntilUp } = this.#config
    return {
      name: `lane ${device.ownLane}`,
      number: device.ownLane,
      address: laneAddressOf(device),
      port: LANE_PROBE_PORT,
      intervals: { busyMs: probeIntervalMs, idleMs: idleProbeIntervalMs, quickMs: quickProbeMs },
      missesUntilSuspect,
      downAfterMs,
      unansweredAfterMs,
      calmAfterMs,
      answersUntilUp,
    }
  }
}

function probedLink({ cluster, remoteLane, laneAddress, identity, sizes, sizeBefore }: PlannedLink): ProbedLink {
  return {
    key: healthKey(remoteLane, cluster),
    cluster,
    number: remoteLane,
    address: laneAddress,
    identity,
    ...(sizes === undefined ? {} : { sizes }),
    ...(sizeBefore === undefined ? {} : { sizeBefore }),
  }
}

function laneAddressOf({ address }: LanePlan): string {
  return address.replace('/32', '')
}

// What the other gateways of this cluster report about the packet sizes of their links. An idle link is seldom probed,
// and the cause that narrows one link often narrows the others. Pure.

/**
 * The clusters that another gateway has begun to report as unanswered. Idle links to them are seldom probed. Empty for
 * this node's own object.
 */
export function silentElsewhere(change: ObjectChange<Gateway> | undefined, ownNode: string): readonly string[] {
  if (change?.type !== 'set' || change.object.metadata.name === ownNode) return []
  const before = unansweredClusters(change.previous === undefined ? [] : [change.previous])
  return [...unansweredClusters([change.object])].filter((id) => !before.has(id))
}

interface SizeHint {
  readonly cluster: string
  /** Compared with before, on some link to this cluster. */
  readonly what: 'less' | 'more'
}

/**
 * Returns, for each cluster, what one change of a Gateway object means for the gateway of node `ownNode`. Empty for its
 * own object, and for links that were not reported before. If one link became narrower and another wider, `less` comes
 * first.
 */
export function sizeHints(change: ObjectChange<Gateway> | undefined, ownNode: string): readonly SizeHint[] {
  if (change?.type !== 'set' || change.object.metadata.name === ownNode) return []
  const before = mtusOf(change.previous)
  const hints = new Map<string, SizeHint>()
  for (const [key, { cluster, mtu }] of mtusOf(change.object)) {
    const was = before.get(key)?.mtu
    if (was === undefined || was === mtu) continue
    const what = mtu < was ? 'less' : 'more'
    hints.set(`${what} ${cluster}`, { cluster, what })
  }
  return [...hints.values()].sort((a, b) => a.what.localeCompare(b.what))
}

function mtusOf(gateway: Gateway | undefined): Map<string, { readonly cluster: string; readonly mtu: number }> {
  const connections = gateway?.status?.connections ?? []
  return new Map(
    connections.flatMap((one) => {
      const { cluster, lane, mtu, state } = one
      if (mtu === undefined || state !== 'up') return []
      return [[`${lane}/${remoteLaneOf(one)}/${cluster}`, { cluster, mtu }] as const]
    }),
  )
}
