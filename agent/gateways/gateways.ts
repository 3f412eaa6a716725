/**
 * Replaces gateway nodes that a join chose and that are gone for good, are being removed or have long been silent:
 * another node gets the label.
 * If the installation says so, it also labels nodes wherever fewer than wanted are gateways, so that no join is needed.
 * The gateway of a node that is being removed drains by itself (gateway/lanes/departure.ts), and hands its lane over to
 * the new one. Only the acting agent does this.
 */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import {
  ANNOTATION_CHOSEN_BY,
  ANNOTATION_PUBLIC_ADDRESS,
  ANY_LANE_VALUE,
  CHOSEN_BY_AGENT,
  LABEL_GATEWAY,
  isChosenGateway,
  silenceTaint,
} from '../../model/lanes/lanes.ts'
import {
  CONDITION_GATEWAYS_CHOSEN,
  MEMBERSHIP_NAME,
  type Node,
  findCondition,
  isDnsSubdomain,
  setCondition,
} from '../../model/model.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type AgentMetrics, loopDeps } from '../loop/loop.ts'
import {
  ALL_RUN_MS,
  ANNOTATION_CHOSEN_GATEWAYS,
  type ChosenRecord,
  MISSING_MS,
  type Replacement,
  type ReplacementPlan,
  SILENT_MS,
  formatRecord,
  parseRecord,
  planReplacement,
  replacementFinding,
  replacementText,
} from './plan-replacement.ts'

/** The writes to Nodes and to the Membership that replacing gateways needs. */
export interface GatewayMarker {
  /**
   * Merges labels and annotations into the Node with this uid. Throws ClusterApiError, also if another Node has the name
   * now.
   */
  mark(node: NodeId, change: NodeMark, signal: AbortSignal): Promise<void>
  /** Merges an annotation into the Membership. Throws ClusterApiError. */
  remember(annotation: string, text: string, signal: AbortSignal): Promise<void>
}

export interface NodeId {
  readonly name: string
  readonly uid: string
}

export interface NodeMark {
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}

export interface ReplacementLoopDeps {
  readonly api: ClusterApi
  readonly marker: GatewayMarker
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

/** What the installation says about the choice of gateways. */
export interface GatewayChoice {
  /** Whether the agent labels nodes wherever fewer than activeGateways are gateways. */
  readonly fillsUp: boolean
  /** The labels that the pods of gateways ask of a node. */
  readonly nodeSelector: Readonly<Record<string, string>>
}

export interface ReplacementLoopInit {
  /** Id of this cluster. */
  readonly own: string
  /** How many gateways are active at once. */
  readonly activeGateways: number
  readonly gatewayChoice: GatewayChoice
  readonly loop: LoopInit
}

const KINDS = ['Node', 'RouteAgent', 'Gateway', 'Membership', 'Cluster'] as const
/** Nodes change often because of their heartbeats. */
const LOOK_MS = 1000
/** A Node that is missing for less than this is not treated as gone: a kubelet may register it again. */
const GONE_MS = 10_000
/** The cache shows a write within this time. */
const LAG_MS = 30_000

/** A chosen Node that has a taint of silence, and whose gateway has sent no heartbeat since. */
interface Silence {
  /** Monotonic. */
  readonly since: number
  /** The last heartbeat of its gateway. Undefined if there is none. */
  readonly heartbeat: string | undefined
  /** Whether the API server itself said the same after SILENT_MS. A cache may have stood still meanwhile. */
  readonly isConfirmed: boolean
}

export class ReplacementLoop {
  readonly #deps: ReplacementLoopDeps
  readonly #init: ReplacementLoopInit
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  /** What this process wrote last. Undefined until then: the Membership has the record of an earlier process. */
  #record: ChosenRecord | undefined
  /** The monotonic time since when each recorded Node is missing, by uid. */
  #missingSince: ReadonlyMap<string, number> = new Map()
  /** Nodes that were labelled, by uid, with the monotonic time. The cache may not show it yet. */
  readonly #marked = new Map<string, number>()
  #cancelWake: () => void = () => undefined
  /** By uid. */
  #silences: ReadonlyMap<string, Silence> = new Map()
  #cancelSilence: () => void = () => undefined
  /** The monotonic time since when fewer nodes than wanted are gateways. */
  #lackingSince: number | undefined
  #cancelFill: () => void = () => undefined

  constructor(deps: ReplacementLoopDeps, init: ReplacementLoopInit) {
    this.#deps = deps
    this.#init = init
    const timing = { ...init.loop, minMs: Math.max(init.loop.minMs, LOOK_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'gateway-nodes'), timing, (signal) => this.#round(signal))
    for (const kind of KINDS) {
      this.#subscriptions.add(
        deps.api.cache(kind).onChange((change) => {
          const isNew = change?.type !== 'set' || change.previous === undefined
          if (kind === 'Node' || isNew) this.#loop.poke()
        }),
      )
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#cancelWake()
    this.#cancelSilence()
    this.#cancelFill()
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api } = this.#deps
    // An object that has not been read yet is not gone.
    if (!KINDS.every((kind) => api.cache(kind).synced)) return
    const membership = api.cache('Membership').get(MEMBERSHIP_NAME)
    if (membership?.spec.phase !== 'joined') return
    const stored = membership.metadata.annotations?.[ANNOTATION_CHOSEN_GATEWAYS]
    const record = this.#record ?? parseRecord(stored)
    const nodes = this.#nodes()
    const plan = planReplacement({
      ...{ nodes, record, gone: await this.#gone(record, nodes, signal), activeGateways: this.#init.activeGateways },
      silent: await this.#silent(nodes, signal),
      nodeSelector: this.#init.gatewayChoice.nodeSelector,
      missingMs: this.#missingMs(),
      running: new Set(
        api
          .cache('RouteAgent')
          .list()
          .map(({ metadata }) => metadata.name),
      ),
    })
    this.#wakeForMissing(plan.missing)
    if (plan.replacements.length > 0) await this.#remember(plan.base, stored, signal)
    for (const one of plan.replacements) await this.#replace(one, signal)
    await this.#remember(plan.record, plan.replacements.length > 0 ? formatRecord(plan.base) : stored, signal)
    await this.#report(plan, signal)
  }

  /** Undefined if the agent only replaces what was chosen. */
  #missingMs(): number | undefined {
    if (!this.#init.gatewayChoice.fillsUp) return undefined
    return this.#lackingSince === undefined ? 0 : this.#deps.clock.monotonic() - this.#lackingSince
  }

  #wakeForMissing(missing: number): void {
    const now = this.#deps.clock.monotonic()
    this.#lackingSince = missing === 0 ? undefined : (this.#lackingSince ?? now)
    this.#cancelFill()
    if (this.#lackingSince === undefined) return
    const since = this.#lackingSince
    const waits = [MISSING_MS, ALL_RUN_MS].map((ms) => since + ms - now).filter((ms) => ms > 0)
    if (waits.length > 0) this.#cancelFill = this.#deps.clock.setTimer(Math.min(...waits), () => this.#loop.poke())
  }

  /** The Nodes with the labels that this process wrote and the cache does not show yet. */
  #nodes(): readonly Node[] {
    const now = this.#deps.clock.monotonic()
    for (const [uid, at] of this.#marked) if (now - at >= LAG_MS) this.#marked.delete(uid)
    return this.#deps.api
      .cache('Node')
      .list()
      .map((node) => {
        const { uid = '', labels, annotations } = node.metadata
        if (!this.#marked.has(uid)) return node
        if (labels?.[LABEL_GATEWAY] !== undefined) {
          this.#marked.delete(uid)
          return node
        }
        const mark = markOf(undefined)
        const metadata = {
          ...node.metadata,
          labels: { ...labels, ...mark.labels },
          annotations: { ...annotations, ...mark.annotations },
        }
        return { ...node, metadata }
      })
  }

  /** The recorded Nodes that are missing long enough, and that the API server itself does not have. */
  async #gone(
    record: ChosenRecord | undefined,
    nodes: readonly Node[],
    signal: AbortSignal,
  ): Promise<ReadonlySet<string>> {
    const { api, clock } = this.#deps
    const now = clock.monotonic()
    const present = new Set(nodes.map(({ metadata }) => metadata.uid))
    const missing = [...(record?.nodes ?? [])].filter(([uid]) => !present.has(uid))
    this.#missingSince = new Map(missing.map(([uid]) => [uid, this.#missingSince.get(uid) ?? now]))
    const waits = [...this.#missingSince.values()].map((since) => since + GONE_MS - now).filter((ms) => ms > 0)
    this.#cancelWake()
    if (waits.length > 0) this.#cancelWake = clock.setTimer(Math.min(...waits), () => this.#loop.poke())
    const gone = new Set<string>()
    for (const [uid, name] of missing) {
      if (now - (this.#missingSince.get(uid) ?? now) < GONE_MS || !isDnsSubdomain(name)) continue
      const found = await api.read('Node', name, undefined, signal)
      if (found?.metadata.uid !== uid) gone.add(uid)
    }
    return gone
  }

  /** The chosen Nodes that do not work for SILENT_MS, by uid, with the taint that says so. */
  async #silent(nodes: readonly Node[], signal: AbortSignal): Promise<ReadonlyMap<string, string>> {
    const { api, clock } = this.#deps
    const now = clock.monotonic()
    const tainted = nodes.flatMap((node) => {
      const { uid, name } = node.metadata
      const taint = isChosenGateway(node) ? silenceTaint(node) : undefined
      return uid === undefined || taint === undefined ? [] : [{ uid, name, taint }]
    })
    const fresh = (heartbeat: string | undefined): Silence => ({ since: now, heartbeat, isConfirmed: false })
    const silences = new Map(
      tainted.map(({ uid, name }) => {
        const heartbeat = api.cache('Gateway').get(name)?.status?.heartbeatTime
        const before = this.#silences.get(uid)
        return [uid, before?.heartbeat === heartbeat && before !== undefined ? before : fresh(heartbeat)]
      }),
    )
    this.#silences = silences
    for (const { uid, name } of tainted) {
      const one = silences.get(uid)
      if (one === undefined || one.isConfirmed || now - one.since < SILENT_MS) continue
      const node = await api.read('Node', name, undefined, signal)
      const gateway = await api.read('Gateway', name, undefined, signal)
      const heartbeat = gateway?.status?.heartbeatTime
      const isSilent = node?.metadata.uid === uid && silenceTaint(node) !== undefined && heartbeat === one.heartbeat
      silences.set(uid, isSilent ? { ...one, isConfirmed: true } : fresh(heartbeat))
    }
    const waits = [...silences.values()].flatMap(({ since, isConfirmed }) =>
      isConfirmed ? [] : [since + SILENT_MS - now],
    )
    this.#cancelSilence()
    if (waits.length > 0) this.#cancelSilence = clock.setTimer(Math.min(...waits), () => this.#loop.poke())
    const confirmed = tainted.filter(({ uid }) => silences.get(uid)?.isConfirmed === true)
    return new Map(confirmed.map(({ uid, taint }) => [uid, taint]))
  }

  async #replace(one: Replacement, signal: AbortSignal): Promise<void> {
    const { api, marker, clock, logger } = this.#deps
    await marker.mark({ name: one.node, uid: one.uid }, markOf(one.publicAddress), signal)
    this.#marked.set(one.uid, clock.monotonic())
    const note = replacementText(one)
    logger.info('another node becomes a gateway', { node: one.node, insteadOf: one.insteadOf, why: one.why })
    const regarding = { kind: 'Node' as const, name: one.node, uid: one.uid }
    const reason = one.insteadOf === undefined ? 'GatewayChosen' : 'GatewayReplaced'
    api.report({ regarding, type: 'Normal', reason, note })
  }

  /** `stored` is the text in the Membership. */
  async #remember(record: ChosenRecord, stored: string | undefined, signal: AbortSignal): Promise<void> {
    const text = formatRecord(record)
    const isNothing =
      [record.nodes, record.given, record.released].every(({ size }) => size === 0) && stored === undefined
    this.#logReleased(record)
    if (!isNothing && text !== stored) await this.#deps.marker.remember(ANNOTATION_CHOSEN_GATEWAYS, text, signal)
    this.#record = record
  }

  #logReleased({ released }: ChosenRecord): void {
    const before = this.#record?.released
    if (before === undefined) return
    for (const { metadata } of this.#deps.api.cache('Node').list()) {
      const { uid = '', name } = metadata
      if (!released.has(uid) || before.has(uid)) continue
      this.#deps.logger.info('the gateway label was taken away: the agent will not label this node again', {
        node: name,
      })
    }
  }

  async #report(plan: ReplacementPlan, signal: AbortSignal): Promise<void> {
    const { api, logger, clock } = this.#deps
    const own = api.cache('Cluster').get(this.#init.own)
    if (own === undefined) return
    const conditions = own.status?.conditions ?? []
    const before = findCondition(conditions, CONDITION_GATEWAYS_CHOSEN)
    const found = replacementFinding(plan)
    // The cause of the last replacement stays, and a cluster without one has no such condition.
    if (found.reason === 'GatewaysThere' && before?.status !== 'False') return
    const next = setCondition(conditions, found, clock.now())
    if (next === conditions) return
    const condition = findCondition(next, CONDITION_GATEWAYS_CHOSEN)
    if (condition === undefined) return
    await api.setCondition({ kind: 'Cluster', name: own.metadata.name }, condition, signal)
    if (found.status === 'True') return
    logger.warn('a gateway node is gone, and no other node can become a gateway', {
      reason: 'GatewayNotReplaced',
      why: found.message,
    })
    const regarding = { kind: 'Membership' as const, name: MEMBERSHIP_NAME }
    api.report({ regarding, type: 'Warning', reason: 'GatewayNotReplaced', note: found.message })
  }
}

function markOf(publicAddress: string | undefined): NodeMark {
  const address = publicAddress === undefined ? {} : { [ANNOTATION_PUBLIC_ADDRESS]: publicAddress }
  return {
    labels: { [LABEL_GATEWAY]: ANY_LANE_VALUE },
    annotations: { [ANNOTATION_CHOSEN_BY]: CHOSEN_BY_AGENT, ...address },
  }
}
