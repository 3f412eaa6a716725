/**
 * Which targets of a service are left out because they refuse or do not answer, as this node's own connections show. A
 * target is an address and a port in the form that nft prints, `244.1.0.9 . 8080`. Pure: the time is given.
 *
 * A target is left out for FIRST_MS, and for twice as long each time that it fails again soon after. After that time it
 * is on probation: new connections go to it again, an answer clears it, and a failure counts as another one.
 */
import type { ServiceKey } from '../../model/model.ts'

/**
 * A connection without an answer for so long is a failure. With the interval this is less than a second, after which a
 * client sends its SYN again.
 */
export const UNANSWERED_MS = 600
export const READ_EACH_MS = 200
/** Reading a large table is much work. It may take one part in so many of the time of a processor. */
const REST = 20
/** The same while a call may become a failure, and is to be moved before its client sends its SYN again. */
const REST_WHILE_ONE_WAITS = 10

export const FIRST_MS = 10_000
export const LONGEST_MS = 300_000
/** Without an answer or a failure for so long, the failures of a target are forgotten. */
export const PROBATION_MS = 300_000
/** A hostile member may have many endpoints, and make them fail in turn. */
export const MAX_LEFT_OUT = 10_000
export const MAX_LEFT_OUT_OF_SERVICE = 256
const SEARCH_EACH_MS = 1000
/** A target that has answered anybody in this time is not left out because another call is unanswered. */
export const ANSWER_COUNTS_MS = 2000

export type FailureOutcome = 'refused' | 'unanswered'

export interface Observation {
  readonly service: ServiceKey
  readonly target: string
  readonly outcome: FailureOutcome | 'answered'
  /** Monotonic time in milliseconds. Never less than in an earlier observation. */
  readonly atMs: number
  /**
   * The ready targets of the service port that the limit counts, those that are left out included. Asked only if the
   * target may be left out otherwise, because finding them takes long.
   */
  readonly ready: () => ReadonlySet<string>
}

/** A target that is left out from now on. */
export interface Ejection {
  readonly service: ServiceKey
  readonly target: string
  readonly outcome: FailureOutcome
  readonly forMs: number
}

interface Failing {
  readonly outcome: FailureOutcome
  readonly forMs: number
  /** It is left out until then, and on probation for PROBATION_MS after. */
  readonly untilMs: number
}

export class PassiveHealth {
  /** By service, and by target in the order in which they were left out. */
  readonly #services = new Map<ServiceKey, Map<string, Failing>>()
  #size = 0
  #searchedAtMs = -Infinity

  /** Returns what is left out from now on because of this observation, if anything. */
  observe({ service, target, outcome, atMs, ready }: Observation): Ejection | undefined {
    const known = this.#services.get(service)?.get(target)
    // What began before the target was left out says nothing new.
    if (known !== undefined && atMs < known.untilMs) return undefined
    if (outcome === 'answered') {
      this.#remove(service, target)
      return undefined
    }
    if (known === undefined && !this.#hasRoom(service, atMs)) return undefined
    const those = ready()
    if (!those.has(target)) return undefined
    const out = this.leftOut(service, atMs).filter((one) => those.has(one))
    if (out.length >= mostLeftOut(those.size)) return undefined
    const forMs = isForgotten(known, atMs) ? FIRST_MS : Math.min(LONGEST_MS, known.forMs * 2)
    this.#remove(service, target)
    const targets = this.#services.get(service) ?? new Map<string, Failing>()
    targets.set(target, { outcome, forMs, untilMs: atMs + forMs })
    this.#services.set(service, targets)
    this.#size += 1
    return { service, target, outcome, forMs }
  }

  /** The targets of the service that are left out, in the order in which they were. */
  leftOut(service: ServiceKey, atMs: number): string[] {
    return [...(this.#services.get(service) ?? [])].flatMap(([target, { untilMs }]) => (atMs < untilMs ? [target] : []))
  }

  /** The targets of each service of which an answer is awaited, with the time at which their probation began. */
  onProbation(atMs: number): ReadonlyMap<ServiceKey, ReadonlyMap<string, number>> {
    const found = new Map<ServiceKey, Map<string, number>>()
    for (const [service, targets] of this.#services) {
      for (const [target, failing] of targets) {
        if (atMs < failing.untilMs || isForgotten(failing, atMs)) continue
        const those = found.get(service) ?? new Map<string, number>()
        those.set(target, failing.untilMs)
        found.set(service, those)
      }
    }
    return found
  }

  /** How many targets are left out, by reason. */
  counts(atMs: number): Readonly<Record<FailureOutcome, number>> {
    const counts = { refused: 0, unanswered: 0 }
    for (const targets of this.#services.values())
      for (const { outcome, untilMs } of targets.values()) if (atMs < untilMs) counts[outcome] += 1
    return counts
  }

  /** The services with a target that is left out or on probation. */
  services(): readonly ServiceKey[] {
    return [...this.#services.keys()]
  }

  /** Forgets the services that are not to be watched any more, and what has been silent for long. */
  keep(isWatched: (service: ServiceKey) => boolean, atMs: number): void {
    for (const [service, targets] of [...this.#services])
      for (const [target, failing] of [...targets])
        if (!isWatched(service) || isForgotten(failing, atMs)) this.#remove(service, target)
  }

  get size(): number {
    return this.#size
  }

  #hasRoom(service: ServiceKey, atMs: number): boolean {
    const isFull = (): boolean =>
      this.#size >= MAX_LEFT_OUT || (this.#services.get(service)?.size ?? 0) >= MAX_LEFT_OUT_OF_SERVICE
    // A search costs as much as there is, and failures may come fast.
    if (isFull() && atMs - this.#searchedAtMs >= SEARCH_EACH_MS) {
      this.#searchedAtMs = atMs
      this.keep(() => true, atMs)
    }
    return !isFull()
  }

  #remove(service: ServiceKey, target: string): void {
    const targets = this.#services.get(service)
    if (targets?.delete(target) !== true) return
    this.#size -= 1
    if (targets.size === 0) this.#services.delete(service)
  }
}

/**
 * Which targets have answered anybody of late. One client whose packets a NetworkPolicy far away drops would else keep
 * its endpoints from all clients of the node. A target has answered if it has an answered connection that it did not
 * have in the reading before.
 */
export class RecentAnswers {
  #before: ReadonlyMap<string, ReadonlySet<number> | undefined> = new Map()
  /** Targets that are in the two last readings. */
  #compared = new Set<string>()
  readonly #answeredAtMs = new Map<string, number>()

  /**
   * Takes the numbers of the answered connections of each target that is suspected. Undefined: there are more than are
   * compared, and what does not answer is believed. Targets that are absent are forgotten.
   */
  read(found: ReadonlyMap<string, ReadonlySet<number> | undefined>, atMs: number): void {
    this.#compared = new Set([...found.keys()].filter((target) => this.#before.has(target)))
    for (const target of this.#compared) {
      const [ids, before] = [found.get(target), this.#before.get(target)]
      if (ids === undefined || before === undefined) continue
      if ([...ids].some((id) => !before.has(id))) this.#answeredAtMs.set(target, atMs)
    }
    for (const target of this.#answeredAtMs.keys()) if (!found.has(target)) this.#answeredAtMs.delete(target)
    this.#before = found
  }

  /** Whether the target has answered nobody for ANSWER_COUNTS_MS, as far as two readings at least show. */
  isSilent(target: string, atMs: number): boolean {
    return this.#compared.has(target) && atMs - (this.#answeredAtMs.get(target) ?? -Infinity) >= ANSWER_COUNTS_MS
  }
}

export interface ReadingTimes {
  readonly lookedAtMs: number
  readonly endedMs: number
  /** Time of a processor that the reading took. On a busy node the reading itself lasts many times as long. */
  readonly workedMs: number
  /** When each call that waits was first seen. */
  readonly seenMs: Iterable<number>
}

/** When connection tracking is read next: at once when a call that waits becomes a failure, and never too often. */
export function nextReadingMs({ lookedAtMs, endedMs, workedMs, seenMs }: ReadingTimes): number {
  let wantedMs = endedMs + READ_EACH_MS
  let rest = REST
  for (const firstMs of seenMs) {
    if (firstMs + UNANSWERED_MS <= lookedAtMs) continue
    wantedMs = Math.min(wantedMs, firstMs + UNANSWERED_MS)
    rest = REST_WHILE_ONE_WAITS
  }
  return Math.max(endedMs + rest * workedMs, wantedMs)
}

function isForgotten(failing: Failing | undefined, atMs: number): failing is undefined {
  return failing === undefined || atMs >= failing.untilMs + PROBATION_MS
}

/** At most half of the ready targets, and never the last: one always stays. */
function mostLeftOut(ready: number): number {
  return Math.floor(ready / 2)
}

/**
 * Those of the candidates that are left out, if `ready` is what remains of the service port now. Earlier candidates come
 * first where the limit does not allow all.
 */
export function leaveOut(ready: ReadonlySet<string>, candidates: Iterable<string>): ReadonlySet<string> {
  const out = new Set<string>()
  const most = mostLeftOut(ready.size)
  for (const one of candidates) {
    if (out.size >= most) break
    if (ready.has(one)) out.add(one)
  }
  return out
}
