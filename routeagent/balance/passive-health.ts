/**
 * Sees with this node's own connection tracking which endpoints refuse or do not answer, for services whose traffic
 * policy asks for it. plan-passive-health.ts decides what is left out, and the planner gives it nothing new.
 *
 * A connection without an answer is in the kernel's list as such, which is read at an interval. The kernel forgets a
 * connection at once that is refused, so a rule of the node's table logs the resets that answer a SYN. A UDP server need
 * not answer, so of UDP only the ICMP errors count, which rules log too. Only time clears such a target.
 *
 * A target that does not answer one client may answer others, if a NetworkPolicy drops the packets of the one. So the
 * answered connections of each target with a call that waits are read too: while there are new ones, it is not left out.
 *
 * What was under way to a target that is left out is forgotten: the client's next SYN, after a second or two, goes to
 * another one. Connections that were answered stay.
 */
import type { FlowTable, LoggedPacket, PacketLog, TranslatedFlow } from '../../kernel/nfnetlink/nfnetlink.ts'
import type { Nft } from '../../kernel/nft/nft.ts'
import type { Family } from '../../model/addresses/addresses.ts'
import { NFLOG_GROUPS_REFUSALS, type ServiceKey } from '../../model/model.ts'
import { type Clock, ReconcileLoop, TokenBucket, type TokenRate } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { LOOP_TIMING, RESYNC_MS, type RouteAgentMetrics, loopDeps } from '../world/world.ts'
import type { BalancePlanner } from './plan-balancing.ts'
import {
  type Ejection,
  type FailureOutcome,
  PassiveHealth,
  RecentAnswers,
  UNANSWERED_MS,
  nextReadingMs,
} from './plan-passive-health.ts'
import { type Reporters, UNREACHABLE, refusalProbe } from './plan-node-table.ts'
import { portKey, watchedName } from './plan-service.ts'

/** How often the answered connections are read while a target is on probation. */
const ANSWERS_EACH_MS = 1000

const MAX_ENTRIES_READ = 1_000_000
/** Connections without an answer that are remembered. More are counted in a later reading. */
const MAX_SEEN = 20_000
const MAX_FORGOTTEN = 10_000
const MAX_REFUSALS = 1000
/** Answered connections of a target at the beginning of its probation. With more, only time clears it. */
const MAX_EARLIER = 1000
/** Answered connections of all targets with a call that waits. Of the targets with more, calls without answer are believed. */
const MAX_ANSWERS = 100_000
/** Failures that one reading takes, and ports of which it finds the ready targets. The rest is for the next reading. */
const MAX_FAILURES = 1000
const MAX_PORTS = 20

const LINES: TokenRate = { burst: 20, perSecond: 0.2 }
const REASONS = { refused: 'EndpointRefuses', unanswered: 'EndpointDoesNotAnswer' } as const

export interface PassiveHealthDeps {
  readonly flows: FlowTable
  /** Absent: refusals are not seen. */
  readonly packetLog?: PacketLog | undefined
  readonly nft: Nft
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
}

export interface PassiveHealthInit {
  readonly family: Family
  /** Name of the loop in metrics and log lines. */
  readonly name: string
  /** What the kernel's table was made from. Undefined while there is none, or while it may be old. */
  readonly plan: () => BalancePlanner | undefined
  /** Who may report that a host is unreachable. Undefined while that is not known; then nobody may. */
  readonly reporters: () => Reporters | undefined
  /** Called when other targets are left out. */
  readonly onChange: () => void
  /** Called when the rules may log refusals, or no longer. */
  readonly onFollowing: () => void
}

interface Failure {
  /** The port that was called, as the plan has it. */
  readonly key: string
  /** By watchedName(). */
  readonly target: string
  readonly outcome: FailureOutcome
}

/** What one reading has done, and what it need not find again. */
interface Reading {
  readonly plan: BalancePlanner
  failures: number
  /** By port. */
  readonly ready: Map<string, ReadonlySet<string>>
  /** By service. */
  readonly leftOut: Map<ServiceKey, Set<string>>
}

export class PassiveHealthLoop {
  readonly #deps: PassiveHealthDeps
  readonly #init: PassiveHealthInit
  readonly #loop: ReconcileLoop
  readonly #lines: TokenBucket
  #health = new PassiveHealth()
  /** When a connection without an answer was first seen. */
  #seen = new Map<string, number>()
  /** Targets that have refused since the last reading, by watchedName(). */
  readonly #refusals = new Map<string, FailureOutcome>()
  /** By service and target: the answered connections that are older than its probation. */
  readonly #earlier = new Map<string, Set<number> | undefined>()
  #answers = new RecentAnswers()
  #answersAtMs = -Infinity
  #lookedAtMs = -Infinity
  /** Unanswered calls that the last reading left for the next one, by port and target. */
  #rest = new Set<string>()
  #isApplying = false
  /** Other targets are left out, and the kernel's table is to follow. */
  #isMoving = false
  #dueAtMs = -Infinity
  #isWatching = false
  #stopTimer: (() => void) | undefined
  #stopFollowing: (() => void) | undefined
  #followedAtMs = -Infinity
  #unsaid = 0
  #failure: string | undefined

  constructor(deps: PassiveHealthDeps, init: PassiveHealthInit) {
    this.#deps = deps
    this.#init = init
    this.#lines = new TokenBucket(deps.clock)
    this.#loop = new ReconcileLoop(loopDeps(deps, init.name), LOOP_TIMING, (signal) => this.#round(signal))
  }

  /** This process reads the refusals. Otherwise the rules log none. */
  get isFollowing(): boolean {
    return this.#stopFollowing !== undefined
  }

  /** Called before a plan is applied. */
  planned(): void {
    this.#isApplying = true
  }

  /** Called when the kernel's table is as planned. */
  applied({ watched }: BalancePlanner): void {
    this.#isApplying = false
    if (this.#isMoving) this.#dueAtMs = -Infinity
    this.#isMoving = false
    const isDue = this.#isWatching && this.#dueAtMs === -Infinity
    if (isDue || this.#isWatching !== watched.size > 0) this.#loop.poke()
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#stopTimer?.()
    this.#stopFollowing?.()
    this.#stopFollowing = undefined
  }

  async #round(signal: AbortSignal): Promise<void> {
    const plan = this.#init.plan()
    const { clock } = this.#deps
    const startedMs = clock.monotonic()
    this.#stopTimer?.()
    this.#isWatching = plan !== undefined && plan.watched.size > 0
    if (plan === undefined) return
    if (!this.#isWatching) {
      this.#end()
      return
    }
    await this.#follow(plan, signal)
    this.#health.keep((service) => plan.watched.has(service), startedMs)
    if (startedMs >= this.#dueAtMs) {
      const worked = process.cpuUsage()
      const reading = { plan, failures: 0, ready: new Map(), leftOut: new Map() }
      this.#takeRefusals(reading)
      // A change of the table while this reads makes it due again.
      this.#dueAtMs = startedMs
      await this.#look(reading, signal).catch((error: unknown) => this.#failed(error, signal))
      const endedMs = clock.monotonic()
      const { user, system } = process.cpuUsage(worked)
      const workedMs = Math.min(endedMs - startedMs, (user + system) / 1000)
      const times = { lookedAtMs: this.#lookedAtMs, endedMs, workedMs, seenMs: this.#seen.values() }
      if (this.#dueAtMs !== -Infinity) this.#dueAtMs = nextReadingMs(times)
    }
    this.#publish(plan)
    const restMs = Math.max(1, this.#dueAtMs - clock.monotonic())
    this.#stopTimer = clock.setTimer(restMs, () => this.#loop.poke())
  }

  /** No policy asks for it any more. */
  #end(): void {
    this.#health = new PassiveHealth()
    this.#answers = new RecentAnswers()
    this.#seen.clear()
    this.#rest.clear()
    this.#refusals.clear()
    this.#earlier.clear()
    this.#count()
    if (this.#stopFollowing === undefined) return
    this.#stopFollowing()
    this.#stopFollowing = undefined
    this.#followedAtMs = -Infinity
    this.#init.onFollowing()
  }

  async #look(reading: Reading, signal: AbortSignal): Promise<void> {
    const { clock, flows } = this.#deps
    const { plan } = reading
    const seen = new Map<string, number>()
    const suspects = new Set<string>()
    const unanswered = new Map<string, Failure>()
    const stale = new Set<string>()
    const isLeft = leftTargets(plan)
    const nowMs = clock.monotonic()
    // Two readings of the answers come before a target is left out. If readings are rare, the first one is now.
    const isRare = nowMs - this.#lookedAtMs >= UNANSWERED_MS / 2
    this.#lookedAtMs = nowMs
    const visit = (call: TranslatedFlow): void => {
      const key = portKey(call.called.address, 'TCP', call.called.port)
      const service = plan.watchedService(key)
      if (service === undefined) return
      const target = targetOf(call)
      const id = idOf(call)
      if (!this.#isApplying && stale.size < MAX_FORGOTTEN && isLeft(key, target))
        if (this.#leftOut(reading, service).has(target)) stale.add(id)
      if (seen.size >= MAX_SEEN) return
      const firstMs = this.#seen.get(id)
      seen.set(id, firstMs ?? nowMs)
      if (firstMs !== undefined || isRare) suspects.add(target)
      if (firstMs !== undefined && nowMs - firstMs >= UNANSWERED_MS)
        unanswered.set(`${key} ${target}`, { key, target, outcome: 'unanswered' })
    }
    const { range } = plan
    await flows.calls({ called: range, state: 'unanswered', limit: MAX_ENTRIES_READ }, visit, signal)
    this.#seen = seen
    await this.#readAnswers(plan, suspects, signal)
    const silent = [...unanswered].filter(([, { target }]) => this.#answers.isSilent(target, nowMs))
    const ofRest = ([id]: (typeof silent)[number]): boolean => this.#rest.has(id)
    const inOrder = [...silent.filter(ofRest), ...silent.filter((one) => !ofRest(one))].map(([, failure]) => failure)
    this.#rest = new Set(this.#take(reading, inOrder).map(({ key, target }) => `${key} ${target}`))
    if (stale.size > 0) await this.#move(plan, stale, signal)
    this.#failure = undefined
  }

  /** Forgets calls, by idOf(). An answer may have come since they were found, so this reads once more just before. */
  async #move({ range }: BalancePlanner, stale: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const { flows, metrics } = this.#deps
    const waiting: TranslatedFlow[] = []
    const visit = (call: TranslatedFlow): void => {
      if (stale.has(idOf(call))) waiting.push(call)
    }
    await flows.calls({ called: range, state: 'unanswered', limit: MAX_ENTRIES_READ }, visit, signal)
    if (waiting.length > 0) metrics.callsMoved.inc({}, await flows.forget(waiting, signal))
  }

  #takeRefusals(reading: Reading): void {
    if (this.#refusals.size === 0) return
    const failures: Failure[] = []
    for (const [key, , { slots }] of reading.plan.watchedPorts()) {
      if (key.includes(' . sctp . ')) continue
      for (const slot of new Set(slots)) {
        const target = watchedName(slot, key)
        const outcome = this.#refusals.get(target)
        if (outcome !== undefined) failures.push({ key, target, outcome })
      }
    }
    this.#refusals.clear()
    for (const { target, outcome } of this.#take(reading, failures)) this.#refusals.set(target, outcome)
  }

  /** Takes failures in this order, and returns those for which the reading has no room. */
  #take(reading: Reading, failures: readonly Failure[]): readonly Failure[] {
    const full = failures.findIndex((failure) => !this.#failedAt(reading, failure))
    return full === -1 ? [] : failures.slice(full)
  }

  /** False: the reading has done enough. */
  #failedAt(reading: Reading, { key, target, outcome }: Failure): boolean {
    const { plan, ready } = reading
    const service = plan.watchedService(key)
    // Most failures are of a target that is left out already, and its service may have many endpoints.
    if (service === undefined || this.#leftOut(reading, service).has(target)) return true
    if (reading.failures >= MAX_FAILURES || (ready.size >= MAX_PORTS && !ready.has(key))) return false
    reading.failures += 1
    const readyOnce = (): ReadonlySet<string> => {
      const found = ready.get(key) ?? plan.ready(key)
      ready.set(key, found)
      return found
    }
    const atMs = this.#deps.clock.monotonic()
    const ejection = this.#health.observe({ service, target, outcome, atMs, ready: readyOnce })
    if (ejection === undefined) return true
    this.#leftOut(reading, service).add(target)
    this.#earlier.delete(`${service} ${target}`)
    this.#deps.metrics.endpointEjections.inc({ reason: REASONS[outcome] })
    this.#say(ejection)
    return true
  }

  #leftOut({ leftOut }: Reading, service: ServiceKey): Set<string> {
    const found = leftOut.get(service) ?? new Set(this.#health.leftOut(service, this.#deps.clock.monotonic()))
    leftOut.set(service, found)
    return found
  }

  /**
   * Reads the answered connections of targets with a call that waits, and of those on probation: an answer to a
   * connection that is younger than the probation of its target clears the target.
   */
  async #readAnswers(plan: BalancePlanner, suspects: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const { clock, flows, logger } = this.#deps
    const nowMs = clock.monotonic()
    const awaited = this.#health.onProbation(nowMs)
    const isNew = [...awaited].some(([service, targets]) =>
      [...targets.keys()].some((target) => !this.#earlier.has(`${service} ${target}`)),
    )
    const isDue = isNew || (awaited.size > 0 && nowMs - this.#answersAtMs >= ANSWERS_EACH_MS)
    const answers = new Map([...suspects].map((target) => [target, new Set<number>()]))
    if (suspects.size === 0) this.#answers.read(answers, nowMs)
    if (suspects.size === 0 && !isDue) return
    this.#answersAtMs = nowMs
    const found = new Map<string, Set<number>>()
    const cleared = new Map<string, readonly [ServiceKey, string]>()
    const many = new Set<string>()
    let count = 0
    const visit = (call: TranslatedFlow): void => {
      const service = plan.watchedService(portKey(call.called.address, 'TCP', call.called.port))
      if (service === undefined) return
      const target = targetOf(call)
      const those = answers.get(target)
      if (those !== undefined && count < MAX_ANSWERS) {
        those.add(call.id)
        count += 1
      } else if (those !== undefined) many.add(target)
      if (awaited.get(service)?.has(target) !== true) return
      const id = `${service} ${target}`
      if (!this.#earlier.has(id)) {
        const earlier = found.get(id) ?? new Set<number>()
        if (earlier.size <= MAX_EARLIER) earlier.add(call.id)
        found.set(id, earlier)
      } else if (this.#earlier.get(id)?.has(call.id) === false) cleared.set(id, [service, target])
    }
    const { range } = plan
    const { whole } = await flows.calls({ called: range, state: 'answered', limit: MAX_ENTRIES_READ }, visit, signal)
    this.#answers.read(
      new Map([...answers].map(([one, ids]) => [one, whole && !many.has(one) ? ids : undefined])),
      nowMs,
    )
    for (const [service, targets] of awaited) {
      for (const target of targets.keys()) {
        const id = `${service} ${target}`
        const earlier = found.get(id) ?? new Set()
        if (!this.#earlier.has(id)) this.#earlier.set(id, earlier.size > MAX_EARLIER ? undefined : earlier)
      }
    }
    const atMs = clock.monotonic()
    for (const [id, [service, target]] of cleared) {
      this.#health.observe({ service, target, outcome: 'answered', atMs, ready: () => new Set() })
      this.#earlier.delete(id)
      if (this.#mayLog()) logger.info('endpoint answers again', { service, endpoint: target })
    }
    const ids = new Set([...awaited].flatMap(([service, targets]) => [...targets.keys()].map((t) => `${service} ${t}`)))
    for (const id of this.#earlier.keys()) if (!ids.has(id)) this.#earlier.delete(id)
  }

  #publish(plan: BalancePlanner): void {
    const atMs = this.#deps.clock.monotonic()
    const out = this.#health.services()
    const changes = out.map((service) => plan.setLeftOut(service, this.#publishable(service, atMs)))
    const left = plan.leftOutServices().filter((service) => !out.includes(service))
    changes.push(...left.map((service) => plan.setLeftOut(service, new Set())))
    this.#count()
    if (!changes.includes(true)) return
    this.#isMoving = true
    this.#init.onChange()
  }

  // The connections that are older than the probation have to be known before new ones come.
  #publishable(service: ServiceKey, atMs: number): ReadonlySet<string> {
    const out = new Set(this.#health.leftOut(service, atMs))
    for (const target of this.#health.onProbation(atMs).get(service)?.keys() ?? [])
      if (!this.#earlier.has(`${service} ${target}`) && this.#failure === undefined) out.add(target)
    return out
  }

  #count(): void {
    const { refused, unanswered } = this.#health.counts(this.#deps.clock.monotonic())
    const counts = { [REASONS.refused]: refused, [REASONS.unanswered]: unanswered }
    this.#deps.metrics.endpointsLeftOut.set(this.#init.family, counts)
  }

  async #follow(plan: BalancePlanner, signal: AbortSignal): Promise<void> {
    const { packetLog, nft, clock, logger } = this.#deps
    const nowMs = clock.monotonic()
    if (packetLog === undefined || this.isFollowing || nowMs - this.#followedAtMs < RESYNC_MS) return
    this.#followedAtMs = nowMs
    const { family } = this.#init
    try {
      // A rule that the kernel does not have would make it refuse the whole table.
      await nft.check(refusalProbe(family, plan.range), signal)
      this.#stopFollowing = await packetLog.follow(
        NFLOG_GROUPS_REFUSALS[family],
        (packet) => this.#refused(packet),
        signal,
      )
      this.#init.onFollowing()
    } catch (error) {
      signal.throwIfAborted()
      logger.info('endpoints that refuse connections are not seen', { why: messageOf(error) })
    }
  }

  #refused({ prefix, protocol, source, sourcePort, about }: LoggedPacket): void {
    if (this.#refusals.size >= MAX_REFUSALS) return
    if (protocol === 'tcp') this.#refusals.set(`${source} . ${sourcePort}`, 'refused')
    if (about?.protocol !== 'udp' || about.port === undefined) return
    const target = watchedName(`${about.destination} . ${about.port}`, ' . udp . ')
    if (prefix === UNREACHABLE) {
      if (this.#init.reporters()?.(source, about.destination) === true) this.#refusals.set(target, 'unanswered')
    } else if (source === about.destination) this.#refusals.set(target, 'refused')
  }

  #say({ service, target, outcome, forMs }: Ejection): void {
    if (!this.#mayLog()) return
    const [unsaid, seconds] = [this.#unsaid, forMs / 1000]
    this.#unsaid = 0
    this.#deps.logger.warn('endpoint left out', {
      reason: REASONS[outcome],
      service,
      endpoint: target,
      seconds,
      ...(unsaid === 0 ? {} : { unsaid }),
    })
  }

  #mayLog(): boolean {
    const isWithin = this.#lines.used(LINES.perSecond) + 1 <= LINES.burst
    if (isWithin) this.#lines.take(1, LINES)
    else this.#unsaid += 1
    return isWithin
  }

  #failed(error: unknown, signal: AbortSignal): void {
    signal.throwIfAborted()
    const why = messageOf(error)
    if (why !== this.#failure)
      this.#deps.logger.warn('connection tracking cannot be read', { reason: 'EndpointHealthNotSeen', why })
    this.#failure = why
  }
}

/** The entry of a call. The kernel may use its number again, for a call of another client. */
function idOf({ id, client }: TranslatedFlow): string {
  return `${id} ${client.address} ${client.port}`
}

function targetOf({ server }: TranslatedFlow): string {
  return `${server.address} . ${server.port}`
}

/** Whether the plan of a port no longer has a target. Asks the plan once for each port. */
function leftTargets(plan: BalancePlanner): (key: string, target: string) => boolean {
  const known = new Map<string, ReadonlySet<string>>()
  return (key, target) => {
    const slots = known.get(key) ?? new Set(plan.ports().get(key)?.slots)
    known.set(key, slots)
    return !slots.has(target)
  }
}
