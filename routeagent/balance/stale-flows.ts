/**
 * Forgets UDP flows to what has gone. The kernel translates all datagrams of a flow like its first one, for as long as
 * the client goes on sending, so a client that never pauses would call an endpoint for ever that has left. As kube-proxy
 * does, the node removes the entries of its own clusterset IPs whose endpoint no longer serves, also where none is left.
 * TCP and SCTP end by themselves: their endpoints answer with a reset or an abort, or not at all. So it is with UDP
 * flows to clusters that are drained now; plan-node-table.ts ends those of TCP and SCTP.
 *
 * Before Linux 6.3, a TCP entry stays for days after the reset that ended its connection, and a client that uses the port
 * again is reset too. So this removes entries whose connection has been ended: packets came after the drain, and none
 * since. One without a packet since the drain stays: its client still has to hear the reset, and without the entry
 * the kernel would send its next packet to another endpoint, in the middle of a connection. So the drain counts from when
 * the kernel took the rules that end connections, and where it has none, all entries stay.
 *
 * The kernel is compared with the plan: after each change in which a UDP port lost a target, once more a moment later for
 * datagrams that were under way, and at an interval. So entries of endpoints that left while no process ran are found
 * too. A port that no import is known to have, and that this process has not seen go, keeps its
 * flows (design rule 2).
 */
import type { FlowTable, TranslatedFlow } from '../../kernel/nfnetlink/nfnetlink.ts'
import { type Clock, ReconcileLoop } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { LOOP_TIMING, type RouteAgentMetrics, loopDeps } from '../world/world.ts'
import type { BalancePlanner, PortChange } from './plan-balancing.ts'
import { portKey } from './plan-service.ts'

/** A larger table is read in part. Most entries cost little: only those of clusterset IPs are decoded. */
const MAX_ENTRIES_READ = 1_000_000
/** Entries that one run removes. If there are more, the next run follows at once, and other work has its turn. */
const MAX_FORGOTTEN = 10_000
/** A datagram that was translated before the change is listed after this time. */
const AGAIN_MS = 1000

/** How long after a drain, and how often from then on, entries of ended TCP connections are looked for. */
const ENDED_EACH_MS = 60_000
/** A client that has sent nothing for so long has heard the reset. */
const QUIET_SECONDS = 30
/** Targets and ports to which TCP connections are ended. Entries of more stay until their time is over. */
const MAX_ENDED = 200_000

/** Ports that went while this process watched. More are not remembered: their flows end with their clients. */
const MAX_GONE = 100_000

/** The planned ports in which flows are checked. */
export interface FlowPlan {
  readonly range: BalancePlanner['range']
  /** The targets to which flows may go on. Undefined if no import is known to have the port. */
  serving(key: string): ReadonlySet<string> | undefined
  /** By port key. */
  ports(): ReadonlyMap<string, unknown>
}

/**
 * Returns a function that tells whether a flow goes to what has gone. `gone` has the keys of ports that were seen to go.
 * Pure; asks the plan once for each port.
 */
export function staleness(plan: FlowPlan, gone: ReadonlySet<string>): (flow: TranslatedFlow) => boolean {
  const known = new Map<string, ReadonlySet<string> | undefined>()
  return ({ called, server }) => {
    const key = portKey(called.address, 'UDP', called.port)
    if (!known.has(key)) known.set(key, plan.serving(key))
    const serving = known.get(key)
    return serving === undefined ? gone.has(key) : !serving.has(`${server.address} . ${server.port}`)
  }
}

/** Whether the key is that of a UDP port. */
function isUdp(key: string): boolean {
  return key.includes(' . udp . ')
}

/** Whether flows may go to what this change took away. */
export function takesTargets({ key, before, after }: PortChange): boolean {
  if (before === undefined || !isUdp(key)) return false
  const left = new Set(after?.slots)
  const ended = new Set(before.ended)
  return before.slots.some((target) => !left.has(target)) || (after?.ended ?? []).some((target) => !ended.has(target))
}

/** Since when the kernel ends TCP connections to targets, by port key and target. */
export class EndedSince {
  readonly #sinceMs = new Map<string, number>()
  /** Planned, while it is not known that the kernel ends connections to them. */
  readonly #planned = new Set<string>()

  /** When the first of them was ended. Infinity if there are none. */
  get firstMs(): number {
    return this.#sinceMs.values().next().value ?? Infinity
  }

  /** Takes changes of the plan, before they are applied. */
  take(changes: readonly PortChange[]): void {
    for (const { key, before, after } of changes) {
      if (!key.includes(' . tcp . ')) continue
      const now = new Set(after?.ended)
      for (const target of before?.ended ?? []) if (!now.has(target)) this.#remove(`${key} ${target}`)
      for (const target of now) {
        const id = `${key} ${target}`
        if (!this.#sinceMs.has(id) && this.#sinceMs.size + this.#planned.size < MAX_ENDED) this.#planned.add(id)
      }
    }
  }

  /** The kernel ends connections to all that is planned, from this monotonic time on at the latest. */
  start(nowMs: number): void {
    for (const id of this.#planned) this.#sinceMs.set(id, nowMs)
    this.#planned.clear()
  }

  /** The kernel ends no connections, or it is not known whether it does. */
  stop(): void {
    for (const id of this.#sinceMs.keys()) this.#planned.add(id)
    this.#sinceMs.clear()
  }

  /** There is no plan any more. */
  clear(): void {
    this.#sinceMs.clear()
    this.#planned.clear()
  }

  #remove(id: string): void {
    this.#sinceMs.delete(id)
    this.#planned.delete(id)
  }

  /** Whether a reset has ended the connection of this entry. */
  hasEnded({ called, server, idleSeconds }: TranslatedFlow, nowMs: number): boolean {
    if (idleSeconds === undefined || idleSeconds < QUIET_SECONDS) return false
    const key = portKey(called.address, 'TCP', called.port)
    const sinceMs = this.#sinceMs.get(`${key} ${server.address} . ${server.port}`)
    return sinceMs !== undefined && nowMs - sinceMs >= ENDED_EACH_MS && idleSeconds * 1000 < nowMs - sinceMs
  }
}

export interface StaleFlowDeps {
  readonly flows: FlowTable
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
}

export class StaleFlowLoop {
  readonly #deps: StaleFlowDeps
  readonly #plan: () => FlowPlan | undefined
  readonly #loop: ReconcileLoop
  readonly #gone = new Set<string>()
  readonly #ended = new EndedSince()
  #endedAtMs = -Infinity
  #due = true
  #stopAgain: (() => void) | undefined
  #failure: string | undefined

  /** `plan` returns what the kernel's table was made from. Undefined while there is none, or while it may be old. */
  constructor(deps: StaleFlowDeps, name: string, plan: () => FlowPlan | undefined) {
    this.#deps = deps
    this.#plan = plan
    // The round reports its failures, each once.
    const silent = { ...loopDeps(deps, name), onError: () => undefined }
    this.#loop = new ReconcileLoop(silent, LOOP_TIMING, (signal) => this.#round(signal))
  }

  /** Called with each change of the plan, before it is applied. */
  planned(changes: readonly PortChange[]): void {
    for (const { key, before, after } of changes) {
      if (after !== undefined) this.#gone.delete(key)
      else if (before !== undefined && isUdp(key) && this.#gone.size < MAX_GONE) this.#gone.add(key)
    }
    this.#ended.take(changes)
    this.#due ||= changes.some(takesTargets)
  }

  /**
   * Called when the kernel's table is as planned. The first time, nothing is known about what came before.
   * `endsConnections`: the table has the rules that end connections.
   */
  applied(endsConnections: boolean): void {
    if (endsConnections) this.#ended.start(this.#deps.clock.monotonic())
    else this.#ended.stop()
    if (!this.#due) return
    this.#due = false
    this.#loop.poke()
    this.#again()
  }

  /** Called when the kernel has not taken the planned table. What table it has is then not known. */
  notApplied(): void {
    this.#ended.stop()
  }

  /** Called when there is no plan any more. The first changes of the next one say all that is in it. */
  unplanned(): void {
    this.#ended.clear()
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#stopAgain?.()
  }

  #again(): void {
    this.#stopAgain?.()
    this.#stopAgain = this.#deps.clock.setTimer(AGAIN_MS, () => this.#loop.poke())
  }

  async #round(signal: AbortSignal): Promise<void> {
    const plan = this.#plan()
    if (plan === undefined) return
    const gone = new Set(this.#gone)
    const hasFlows = gone.size > 0 || [...plan.ports().keys()].some(isUdp)
    // One must not wait for the other, as each may fail for good.
    const failures: unknown[] = []
    const attempt = (work: Promise<void>): Promise<void> => work.catch((error: unknown) => void failures.push(error))
    await attempt(this.#forgetEnded(plan, signal))
    if (hasFlows) await attempt(this.#forgetStale(plan, gone, signal))
    if (failures.length > 0) signal.throwIfAborted()
    const why = failures.length === 0 ? undefined : [...new Set(failures.map(messageOf))].join('; ')
    if (why !== undefined && why !== this.#failure) {
      this.#deps.logger.warn('flows to endpoints that have gone cannot be removed', {
        reason: 'FlowsNotForgotten',
        why,
      })
    }
    this.#failure = why
    // The loop tries again.
    if (failures.length > 0) throw failures[0]
  }

  async #forgetStale(plan: FlowPlan, gone: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const { forgotten, more } = await this.#forget(plan, gone, signal)
    this.#deps.metrics.flowsForgotten.inc({}, forgotten)
    if (forgotten > 0)
      this.#deps.logger.info('UDP flows to endpoints that have gone were removed', { flows: forgotten })
    if (more) this.#loop.poke()
  }

  async #forgetEnded({ range }: FlowPlan, signal: AbortSignal): Promise<void> {
    const { flows, clock, logger } = this.#deps
    const nowMs = clock.monotonic()
    if (nowMs - Math.max(this.#ended.firstMs, this.#endedAtMs) < ENDED_EACH_MS) return
    const ended: TranslatedFlow[] = []
    const visit = (call: TranslatedFlow): void => {
      if (ended.length < MAX_FORGOTTEN && this.#ended.hasEnded(call, nowMs)) ended.push(call)
    }
    await flows.calls({ called: range, state: 'answered', limit: MAX_ENTRIES_READ }, visit, signal)
    const forgotten = ended.length === 0 ? 0 : await flows.forget(ended, signal)
    this.#endedAtMs = nowMs
    if (forgotten > 0) logger.info('entries of TCP connections that were ended were removed', { flows: forgotten })
  }

  async #forget(
    plan: FlowPlan,
    gone: ReadonlySet<string>,
    signal: AbortSignal,
  ): Promise<{ readonly forgotten: number; readonly more: boolean }> {
    const { flows } = this.#deps
    const isStale = staleness(plan, gone)
    const stale: TranslatedFlow[] = []
    let more = false
    const visit = (flow: TranslatedFlow): void => {
      if (more || !isStale(flow)) return
      if (stale.length < MAX_FORGOTTEN) stale.push(flow)
      else more = true
    }
    await flows.flows(plan.range, MAX_ENTRIES_READ, visit, signal)
    return { forgotten: await flows.forget(stale, signal), more }
  }
}
