/**
 * What this gateway states of relays in its Endpoint: numbers that stay as they are until another one has been measured
 * for some time, so that records change rarely, and links do not move to and fro.
 */
import {
  MAX_RELAY_RTTS,
  type RelayCosts,
  encodeRelayCosts,
  isClearlyLess,
  relayMark,
} from '../../../model/lanes/lanes.ts'
import { type GatewayWorld, healthKey } from '../../world/world.ts'
import type { PlannedLane } from './links-in-use.ts'

/** A measurement has to differ for so long before another number is stated. */
export const COST_STAYS_MS = 30_000
/** The load that an earlier run of the process stated is stated for so long before this one has measured any. */
export const RESTORED_LOAD_MS = 30_000
/**
 * A relay that is not measured any more is stated for so long: its link may come back, and the Endpoints of all members
 * change if they drop it. If more relays are remembered than can be stated, it makes room after ROOM_AFTER_MS.
 */
export const COST_KEPT_MS = 3_600_000
export const ROOM_AFTER_MS = 60_000
/** A load has to differ by so much. */
const LOAD_DIFFERS = 0.2
/** Most relays of which a number is remembered. */
const MOST_RELAYS = 64

interface StatedCost {
  ms: number
  /** Since when each measurement has differed. Undefined: the last one did not. */
  differsSinceMs: number | undefined
  measuredMs: number
}

interface MeasuredCosts extends RelayCosts {
  readonly asleep?: readonly string[]
}

export class StatedCosts {
  readonly #rtts = new Map<string, StatedCost>()
  #load: { value: number; differsSinceMs: number | undefined } | undefined
  #restoredMs = -Infinity

  /** Takes what this gateway has stated before. Call it before the first look. */
  restore({ rttMs, load }: RelayCosts, nowMs: number): void {
    for (const [mark, ms] of rttMs) this.#rtts.set(mark, { ms, differsSinceMs: undefined, measuredMs: nowMs })
    if (load === undefined) return
    this.#load = { value: load, differsSinceMs: undefined }
    this.#restoredMs = nowMs
  }

  /**
   * Takes the round trips measured now, by relayMark(), the load if this gateway relays, and the marks of relays that are
   * not measured because the links with them sleep: their numbers stay. Returns capabilities.
   */
  look({ rttMs, load, asleep = [] }: MeasuredCosts, nowMs: number): readonly string[] {
    for (const [mark, measured] of rttMs) this.#take(mark, Math.round(measured), nowMs)
    for (const mark of asleep) {
      const known = this.#rtts.get(mark)
      if (known !== undefined) Object.assign(known, { differsSinceMs: undefined, measuredMs: nowMs })
    }
    for (const [mark, { measuredMs }] of this.#rtts) {
      const keptMs = this.#rtts.size > MAX_RELAY_RTTS ? ROOM_AFTER_MS : COST_KEPT_MS
      if (nowMs - measuredMs >= keptMs) this.#rtts.delete(mark)
    }
    this.#takeLoad(load, nowMs)
    const stated = new Map([...this.#rtts].map(([mark, { ms }]) => [mark, ms]))
    return encodeRelayCosts({ rttMs: stated, ...(this.#load === undefined ? {} : { load: this.#load.value }) })
  }

  #take(mark: string, measured: number, nowMs: number): void {
    const known = this.#rtts.get(mark)
    if (known === undefined) {
      if (this.#rtts.size < MOST_RELAYS) {
        this.#rtts.set(mark, { ms: measured, differsSinceMs: undefined, measuredMs: nowMs })
      }
      return
    }
    known.measuredMs = nowMs
    const differs = isClearlyLess(measured, known.ms) || isClearlyLess(known.ms, measured)
    known.differsSinceMs = differs ? (known.differsSinceMs ?? nowMs) : undefined
    if (known.differsSinceMs === undefined || nowMs - known.differsSinceMs < COST_STAYS_MS) return
    known.ms = measured
    known.differsSinceMs = undefined
  }

  #takeLoad(load: number | undefined, nowMs: number): void {
    if (load === undefined) {
      // A relay that begins again takes its first pairs after a moment.
      if (nowMs - this.#restoredMs >= RESTORED_LOAD_MS) this.#load = undefined
      return
    }
    this.#restoredMs = -Infinity
    const known = (this.#load ??= { value: load, differsSinceMs: undefined })
    const differs = Math.abs(load - known.value) >= LOAD_DIFFERS
    known.differsSinceMs = differs ? (known.differsSinceMs ?? nowMs) : undefined
    if (known.differsSinceMs === undefined || nowMs - known.differsSinceMs < COST_STAYS_MS) return
    this.#load = { value: load, differsSinceMs: undefined }
  }
}

/**
 * Round trips to gateways that relay, by relayMark(), in milliseconds: those of the links with them, if they are up.
 * The figures of a link that sleeps are old, so of that only the mark is given.
 */
export function relayTrips(
  { health }: Pick<GatewayWorld, 'health'>,
  lanes: readonly PlannedLane[],
): { readonly rttMs: ReadonlyMap<string, number>; readonly asleep: readonly string[] } {
  const up = lanes.flatMap(({ remoteLane, links }) =>
    links.flatMap(({ relays, cluster, identity }) => {
      const { state, figures, asleep: isAsleep = false } = health.get(healthKey(remoteLane, cluster)) ?? {}
      if (relays !== true || state !== 'up' || figures?.rttMs === undefined) return []
      return [{ mark: relayMark(identity), rttMs: figures.rttMs, isAsleep }]
    }),
  )
  return {
    rttMs: new Map(up.flatMap(({ mark, rttMs, isAsleep }) => (isAsleep ? [] : [[mark, rttMs] as const]))),
    asleep: up.flatMap(({ mark, isAsleep }) => (isAsleep ? [mark] : [])),
  }
}
