/** When to send a question to a far end, and how long an answer may take. Pure; times are in milliseconds. */
import { answerWaitMs } from './answer-wait.ts'
import type { HealthState, ProbeFigures } from './peer-health.ts'

export interface ProbeIntervals {
  /** Interval between questions while traffic flows, or while it is not known whether the path works. */
  readonly busyMs: number
  /** Interval between questions without traffic. */
  readonly idleMs: number
  /** The shortest time after which a question without an answer is missed. The next question follows at once. */
  readonly quickMs: number
}

/** Five questions a second with traffic, one without. */
export const PROBE_INTERVALS: ProbeIntervals = { busyMs: 200, idleMs: 1000, quickMs: 50 }

/** After this time in a state, a silent far end is probed at the slow interval. */
export const SETTLED_MS = 10_000
/**
 * Fraction by which the pause varies from question to question, so that many far ends are not probed at the same
 * moment.
 */
const JITTER = 0.1

export interface Moment {
  readonly intervals: ProbeIntervals
  readonly state: HealthState
  readonly suspected: boolean
  /** How long until a silent far end is unanswered, so that it is looked at then. Absent: that does not matter. */
  readonly untilUnansweredMs?: number | undefined
  /** True if traffic flowed to the far end lately. */
  readonly busy: boolean
  /** True if the last question was answered. */
  readonly answered: boolean
  readonly nowMs: number
  /** 0 inclusive to 1 exclusive. */
  readonly random: number
}

/** Returns the pause between two questions if the last one was answered, or if a delay does no harm. */
export function pauseMs({ intervals, state, suspected, busy, answered, nowMs, random }: Moment): number {
  // The next answer may complete the answers that bring the far end up.
  if (state.is === 'down' && answered) return intervals.quickMs
  const base = suspected || isNew(state, nowMs) || (state.is === 'up' && busy) ? intervals.busyMs : intervals.idleMs
  return Math.round(base * (1 - JITTER + 2 * JITTER * random))
}

/**
 * Returns how long to wait for an answer before it counts as missed: answerWaitMs(), as far as the path is known. A far
 * end that is down comes up after consecutive answers. On a long path, each of them would follow a miss,
 * so at first the questions follow each other so fast that each waiting time contains an answer to one of them.
 */
export function patienceMs(
  { intervals, state, suspected, untilUnansweredMs, nowMs }: Omit<Moment, 'busy' | 'answered' | 'random'>,
  figures: ProbeFigures,
): number {
  const { rttMs, jitterMs = 0 } = figures
  const isQuick = state.is === 'connecting' || suspected || (state.is === 'down' && isNew(state, nowMs))
  if (suspected && untilUnansweredMs !== undefined && rttMs !== undefined)
    return Math.min(intervals.busyMs, answerWaitMs({ rttMs, jitterMs }, Math.max(intervals.quickMs, untilUnansweredMs)))
  if (isQuick || rttMs === undefined) return intervals.busyMs
  if (state.is === 'up') return answerWaitMs({ rttMs, jitterMs }, intervals.quickMs)
  // The variation before a path went down may only reflect how it failed.
  return answerWaitMs({ rttMs, jitterMs: Math.min(jitterMs, rttMs / 4) }, intervals.busyMs)
}

function isNew(state: HealthState, nowMs: number): boolean {
  return nowMs - state.sinceMs < SETTLED_MS
}
