/**
 * What calls of a relay on port 443 show: which processes answer at its address, and why a call has failed. Knows no
 * sockets.
 */
import type { ReasonCode } from '../../../model/reasons/reasons.ts'
import { ProxyError } from '../../../runtime/proxy/proxy.ts'
import { UserError } from '../../../runtime/runtime.ts'

// A relay that starts again is another process from then on. An address that leads back to an earlier one leads to
// several, and gateways there may never meet.

/** Processes that are remembered, at most. */
const MOST_EARLIER = 8
/** A relay that hands its connections to its successor is gone by then. */
const CONFIRM_MS = 10_000
/** An address counts as one of several relays for so long after it was seen last. */
const LAPSE_MS = 10 * 60_000

export class InstanceWatch {
  #last: string | undefined
  /** With when each was followed by another one. Oldest first. */
  #earlier: readonly { readonly instance: string; readonly untilMs: number }[] = []
  /** Another process answered first at this time, while a connection to `held` was open. */
  #other: { readonly held: string; readonly sinceMs: number } | undefined
  #untilMs = -Infinity

  /** This process has answered, while a connection to `held` is open at the address. Times are monotonic. */
  saw(instance: string | undefined, held: string | undefined, nowMs: number): void {
    if (instance === undefined) return
    const isBesides = this.#isBesides(instance, held, nowMs)
    if (this.#isBack(instance, nowMs) || isBesides) this.#untilMs = nowMs + LAPSE_MS
  }

  /** Whether the address leads to several processes. */
  varies(nowMs: number): boolean {
    return nowMs < this.#untilMs
  }

  #isBesides(instance: string, held: string | undefined, nowMs: number): boolean {
    if (held === undefined) return false
    const before = this.#other?.held === held ? this.#other : undefined
    if (before !== undefined && nowMs - before.sinceMs < CONFIRM_MS) return false
    this.#other = instance === held ? undefined : { held, sinceMs: nowMs }
    return before !== undefined
  }

  #isBack(instance: string, nowMs: number): boolean {
    const last = this.#last
    if (instance === last) return false
    this.#last = instance
    // What was seen long ago does not count.
    const earlier = this.#earlier.filter(({ untilMs }) => nowMs - untilMs < LAPSE_MS)
    const isBack = earlier.some((one) => one.instance === instance)
    const others = earlier.filter((one) => one.instance !== last)
    this.#earlier = (last === undefined ? others : [...others, { instance: last, untilMs: nowMs }]).slice(-MOST_EARLIER)
    return isBack
  }
}

// Proxies that end TLS may show other keys of one process at several addresses. A relay takes one connection of a gateway,
// so connections by them replace each other.

/** Pairs of keys that are remembered, at most. */
const MOST_PAIRS = 64

/**
 * Which keys of relays give way to which others. A key gives way by its own word alone: a relay that states the instance
 * of another one could otherwise keep gateways from that. What takes its place may say the same of a third one, which
 * counts for the first too: three keys that only knew the one before them would replace each other in a circle.
 */
export class KeysThatYield {
  /** By the text of both keys, oldest first. */
  readonly #pairs = new Map<string, { readonly key: string; readonly other: string }>()

  /** What answers by `key` has said that the connection by `other` has taken the place of its own one. */
  yields(key = '', other = ''): void {
    const pair = `${key} ${other}`
    this.#pairs.delete(pair)
    this.#pairs.set(pair, { key, other })
    const [oldest] = this.#pairs.keys()
    if (this.#pairs.size > MOST_PAIRS && oldest !== undefined) this.#pairs.delete(oldest)
  }

  doesYield(key = '', other = ''): boolean {
    if (key === other) return false
    const reached = new Set([key])
    // What is added on the way is walked too.
    for (const one of reached) for (const pair of this.#pairs.values()) if (pair.key === one) reached.add(pair.other)
    return reached.has(other)
  }
}

/** By what the errors of relay-connection.ts carry: that file is loaded late. */
export function isRefusal(error: unknown): error is Error & { readonly why: string; readonly aheadMs: number } {
  return error instanceof Error && error.name === 'RelayRefusedError'
}

/** Whether another relay of this gateway is connected to the process to which the call has led. */
export function isNotWanted(error: unknown): boolean {
  return error instanceof Error && error.name === 'RelayNotWantedError'
}

/** The code of what has caused an error. Undefined: there is none. */
function codeOf(error: unknown): unknown {
  const cause: unknown = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && 'code' in cause ? cause.code : undefined
}

/** A clock that differs by more makes tickets look expired, or not yet good. */
const WRONG_CLOCK_MS = 5 * 60_000

/** The reason code of a call that has failed. */
export function reasonOfFailure(error: unknown): ReasonCode {
  if (error instanceof ProxyError) return error.reason
  // The proxy of the environment cannot be parsed.
  if (error instanceof UserError) return 'InvalidValue'
  if (codeOf(error) === 'CERT_NOT_YET_VALID') return 'RelayWrongClock'
  if (!isRefusal(error)) return 'RelayUnreachable'
  if (error.why === 'foreignClusterset') return 'RelayForeignClusterset'
  const isClock = error.why === 'wrongClock' || (error.why === 'expired' && Math.abs(error.aheadMs) > WRONG_CLOCK_MS)
  return isClock ? 'RelayWrongClock' : 'RelayRefused'
}
