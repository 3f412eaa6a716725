/**
 * A cache of this cluster's Gateway objects that accounts for failures: a gateway that has stopped reporting, and whose
 * machine does not answer either, has no connection that is up (model/lanes/liveness.ts).
 *
 *   heartbeat changes ◄──────────────────────────── any change: fresh at once
 *        │ late by a fifth: the API is read repeatedly
 *        ▼
 *   unchanged over three heartbeats of answers ── TCP probe of the machine
 *        ├─ it answers, or never has ► silent; probed again every TCP_REPROBE_MS
 *        ├─ it fails twice in a row, and has answered before (KnownMachines) ► gone, until the heartbeat changes
 *        └─ its Node has no gateway label any more, so its process could not remove its object ► gone
 *
 * While the API does not answer, no heartbeat changes, and neither does the state here. The same holds while writes
 * fail and reads succeed (a full store, a missing role): the machines answer, or it is not known whether they do.
 */
import {
  type GatewayLiveness,
  HEARTBEATS_UNTIL_STALE,
  HEARTBEAT_MS,
  LABEL_GATEWAY,
  heardGateways,
} from '../model/lanes/lanes.ts'
import type { Gateway, Node } from '../model/model.ts'
import { type Clock, Heartbeats, type TcpProbe, KnownMachines, Listeners } from '../reconcile/reconcile.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import type { ClusterApi, ObjectCache, ObjectChange } from './cluster-api.ts'

export interface HeardGatewaysDeps {
  readonly api: Pick<ClusterApi, 'cache' | 'read'>
  readonly clock: Clock
  readonly logger: Logger
  /** TCP probe. Absent: no machine is probed, and no gateway is ever considered gone. */
  readonly probeTcp?: TcpProbe | undefined
  /** The interval at which gateways write, which is the same for all. Default HEARTBEAT_MS. */
  readonly heartbeatMs?: number | undefined
}

type Listener = (change: ObjectChange<Gateway> | undefined) => void

/** Intervals that follow from the heartbeat interval. */
interface Patience {
  /** Slightly more than one heartbeat: a busy gateway is sometimes late. */
  readonly suspectMs: number
  /** Pause between two reads of the API while a heartbeat is late. */
  readonly askMs: number
  readonly staleMs: number
  /** Pause between two checks while no heartbeat is late. */
  readonly calmMs: number
  /** The longest time from a heartbeat to the first answer, and between two answers, that counts as continuous. */
  readonly gapMs: number
}

function patience(heartbeatMs: number): Patience {
  return {
    suspectMs: 1.2 * heartbeatMs,
    askMs: 0.4 * heartbeatMs,
    calmMs: Math.max(LOOK_MS, 0.2 * heartbeatMs),
    staleMs: HEARTBEATS_UNTIL_STALE * heartbeatMs,
    gapMs: 2 * heartbeatMs,
  }
}

interface Silence {
  readonly liveness: GatewayLiveness
  readonly nextTcpProbeMs: number
}

const LOOK_MS = 500
const READ_TIMEOUT_MS = 3000
const TCP_REPROBE_MS = 5000

export class HeardGateways implements ObjectCache<Gateway> {
  readonly #deps: HeardGatewaysDeps
  readonly #cache: ObjectCache<Gateway>
  /** For the addresses of the machines; not opened if no machine is probed. */
  readonly #nodes: ObjectCache<Node> | undefined
  readonly #patience: Patience
  readonly #beats: Heartbeats
  readonly #machines: KnownMachines | undefined
  readonly #silences = new Map<string, Silence>()
  readonly #listeners = new Listeners<Parameters<Listener>>()
  #askAgainMs = 0

  constructor(deps: HeardGatewaysDeps) {
    this.#deps = deps
    this.#cache = deps.api.cache('Gateway')
    const { clock, probeTcp, heartbeatMs = HEARTBEAT_MS } = deps
    this.#nodes = probeTcp === undefined ? undefined : deps.api.cache('Node')
    this.#machines = probeTcp === undefined ? undefined : new KnownMachines({ clock, tcpProbe: probeTcp })
    this.#patience = patience(heartbeatMs)
    this.#beats = new Heartbeats(deps, this.#patience)
  }

  get synced(): boolean {
    return this.#cache.synced
  }

  whenSynced(signal: AbortSignal): Promise<void> {
    return this.#cache.whenSynced(signal)
  }

  list(): readonly Gateway[] {
    return heardGateways(this.#cache.list(), (name) => this.liveness(name))
  }

  get(name: string): Gateway | undefined {
    return this.list().find(({ metadata }) => metadata.name === name)
  }

  /** Like onChange() of the cache, and also when a gateway's liveness changes: then with its object. */
  onChange(listener: Listener): () => void {
    const forget = this.#listeners.add(listener)
    const stop = this.#cache.onChange(listener)
    return () => {
      forget()
      stop()
    }
  }

  liveness(name: string): GatewayLiveness {
    return this.#silences.get(name)?.liveness ?? 'fresh'
  }

  /** Returns the names of the gateways that are not fresh, sorted. */
  stale(): readonly string[] {
    return [...this.#silences].flatMap(([name, { liveness }]) => (liveness === 'fresh' ? [] : [name])).sort()
  }

  /** Watches until the signal is aborted. Before and after, all gateways count as fresh. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#deps
    for (const gateway of this.#cache.list()) this.#saw(gateway)
    const stop = this.#cache.onChange((change) => this.#changed(change))
    while (!signal.aborted) {
      try {
        await this.#look(signal)
      } catch (error) {
        logger.error('cannot check the heartbeats of gateways; retrying', {
          reason: 'RoundFailed',
          why: String(error),
        })
      }
      await clock.sleep(this.#pauseMs(), signal).catch(() => undefined)
    }
    stop()
  }

  /** Checks often while a gateway is late; otherwise often enough to notice soon when one becomes late. */
  #pauseMs(): number {
    const isCalm = this.#beats.doubtful().length === 0 && this.#beats.stopped().length === 0
    return isCalm ? this.#patience.calmMs : LOOK_MS
  }

  #changed(change: ObjectChange<Gateway> | undefined): void {
    if (change?.type === 'set') this.#saw(change.object)
    if (change?.type !== 'removed') return
    const { name } = change.object.metadata
    this.#beats.forget(name)
    this.#silences.delete(name)
    this.#machines?.forget(name)
  }

  #saw({ metadata: { name }, status }: Gateway): void {
    if (this.#beats.saw(name, status?.heartbeatTime)) this.#machines?.spoke(name)
    if (!this.#beats.hasStopped(name) && this.#silences.has(name)) this.#validate(name, undefined)
  }

  async #look(signal: AbortSignal): Promise<void> {
    this.#tendMachines()
    await this.#ask(signal)
    const now = this.#deps.clock.monotonic()
    const due = this.#beats.stopped().filter((name) => (this.#silences.get(name)?.nextTcpProbeMs ?? 0) <= now)
    await Promise.all(due.map((name) => this.#tcpProbeAt(name)))
  }

  /** Probes machines while their gateways are fresh: later it may be too late to learn whether they answer. */
  #tendMachines(): void {
    const notWell = new Set([...this.#beats.stopped(), ...this.#beats.doubtful()])
    for (const { metadata, status } of this.#cache.list()) {
      const address = this.#addressOf(metadata.name)
      if (status?.heartbeatTime === undefined || address === undefined || notWell.has(metadata.name)) continue
      this.#machines?.tend(metadata.name, address)
    }
  }

  /** Reads all late gateways from the API, since the watch itself may have stalled. A failed read proves nothing. */
  async #ask(signal: AbortSignal): Promise<void> {
    const { api, clock } = this.#deps
    const names = this.#beats.doubtful()
    if (names.length === 0 || clock.monotonic() < this.#askAgainMs) return
    this.#askAgainMs = clock.monotonic() + this.#patience.askMs
    const late = new AbortController()
    const cancel = clock.setTimer(READ_TIMEOUT_MS, () => late.abort(new Error('no answer in time')))
    const limited = AbortSignal.any([signal, late.signal])
    try {
      const found = await Promise.all(names.map((name) => api.read('Gateway', name, undefined, limited)))
      for (const gateway of found) if (gateway !== undefined) this.#saw(gateway)
      this.#beats.viewIsLive()
    } catch {
      // Without an answer the state does not change.
    } finally {
      cancel()
    }
  }

  async #tcpProbeAt(name: string): Promise<void> {
    if (this.liveness(name) === 'gone') return
    const isDead = this.#isDismissed(name) || (await this.#isDead(name))
    if (!this.#beats.hasStopped(name)) return
    const nextTcpProbeMs = this.#deps.clock.monotonic() + TCP_REPROBE_MS
    this.#validate(name, { liveness: isDead ? 'gone' : 'silent', nextTcpProbeMs })
  }

  async #isDead(name: string): Promise<boolean> {
    const address = this.#addressOf(name)
    return address !== undefined && (await this.#machines?.isDead(name, address)) === true
  }

  /** Whether its Node exists but is no longer a gateway. */
  #isDismissed(name: string): boolean {
    const node = this.#nodes?.get(name)
    return node !== undefined && node.metadata.labels?.[LABEL_GATEWAY] === undefined
  }

  #addressOf(name: string): string | undefined {
    return this.#nodes?.get(name)?.status?.addresses?.find(({ type }) => type === 'InternalIP')?.address
  }

  #validate(name: string, silence: Silence | undefined): void {
    const before = this.liveness(name)
    if (silence === undefined) this.#silences.delete(name)
    else this.#silences.set(name, silence)
    const now = this.liveness(name)
    if (before === now) return
    const { logger } = this.#deps
    if (now === 'fresh') logger.info('the gateway reports again', { gateway: name })
    else
      logger.warn('a gateway has stopped reporting', {
        reason: 'GatewayStatusStale',
        gateway: name,
        machine: now === 'gone' ? 'silent' : 'not known to be dead',
      })
    const object = this.#cache.get(name)
    if (object === undefined) return
    this.#listeners.call({ type: 'set', object, previous: object })
  }
}
