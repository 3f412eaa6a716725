/** When a far end is asked, and how long an answer may take. Pure; milliseconds. */
import type { HealthState, ProbeFigures } from './peer-health.ts'

export interface Pace {
  /** Between two questions where traffic flows, or where it is not known yet whether the way works. */
  readonly busyMs: number
  /** The same where nothing flows. */
  readonly idleMs: number
  /** A question that is not answered within this time is missed at the earliest, and asked again at once. */
  readonly quickMs: number
}

/** Five a second where traffic flows, one where none does. */
export const PACE: Pace = { busyMs: 200, idleMs: 1000, quickMs: 50 }

/** After this time in a state, what is silent is asked at the slow pace. */
export const SETTLED_MS = 10_000
/** Share by which a pause differs from one question to the next, so that many far ends are not asked in step. */
const JITTER = 0.1

export interface Moment {
  readonly pace: Pace
  readonly state: HealthState
  readonly doubted: boolean
  /** Traffic flowed there lately. */
  readonly busy: boolean
  /** The last question was answered. */
  readonly answered: boolean
  readonly nowMs: number
  /** 0 inclusive to 1 exclusive. */
  readonly random: number
}

/** From one question to the next, where the last one has been answered or there is no hurry. */
export function pauseMs({ pace, state, doubted, busy, answered, nowMs, random }: Moment): number {
  // One answer more, and it is up.
  if (state.is === 'down' && answered) return pace.quickMs
  const base = doubted || isNew(state, nowMs) || (state.is === 'up' && busy) ? pace.busyMs : pace.idleMs
  return Math.round(base * (1 - JITTER + 2 * JITTER * random))
}

/**
 * How long to wait for an answer before it is missed: half as much again as answers take, and what they vary by. What is
 * down comes up by answers in a row, and those of a long way would each come after a miss; at first the questions follow
 * each other so fast that there is an answer to one of them in each of their times.
 */
export function patienceMs(
  { pace, state, doubted, nowMs }: Pick<Moment, 'pace' | 'state' | 'doubted' | 'nowMs'>,
  figures: ProbeFigures,
): number {
  const { rttMs, jitterMs = 0 } = figures
  const isQuick = state.is === 'connecting' || doubted || (state.is === 'down' && isNew(state, nowMs))
  if (isQuick || rttMs === undefined) return pace.busyMs
  const varies = 4 * jitterMs
  // What answers varied by before a way went down may be no more than how it ended.
  const [least, more] = state.is === 'up' ? [pace.quickMs, varies] : [pace.busyMs, Math.min(varies, rttMs)]
  return Math.min(MAX_PATIENCE_MS, Math.max(least, 1.5 * rttMs + more))
}

const MAX_PATIENCE_MS = 2000

function isNew(state: HealthState, nowMs: number): boolean {
  return nowMs - state.sinceMs < SETTLED_MS
}
