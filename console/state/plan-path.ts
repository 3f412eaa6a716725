/** One call as `sealane explain` explains it, cut to bounds and made printable for the page. */
import type { PathExplanation, PathQuestion, PathStep } from '../../explain/path/path.ts'
import { MAX_MESSAGE, clipped, numbers, withFlags } from './plan-rows.ts'

/** Steps of a path. explain/ makes at most four ways, there and back. */
const MOST_STEPS = 200
const MOST_NOTES = 8
const MOST_TEXTS = 20

/** A call to explain. */
export interface AskedPath extends PathQuestion {
  /** On a page about several contexts: that of the caller. */
  readonly fromContext?: string | undefined
  /** That of the called end. Absent: all others are asked. */
  readonly toContext?: string | undefined
}

/** What the page gets for two ends. */
export type PathAnswer = ({ readonly t: 'explained' } & ExplainedPath) | WrongAnswer | FailedAnswer

/** The question is about something that is not there, or is no question. */
export interface WrongAnswer extends WrongPath {
  readonly t: 'wrong'
}

/** The facts could not be had. */
export interface FailedAnswer {
  readonly t: 'failed'
  readonly why: string
}

export interface ExplainedPath {
  /** The command that says the same. */
  readonly command: string
  readonly takenAt: string
  readonly from: string
  readonly to: string
  readonly outcome: 'REACHABLE' | 'AMBIGUOUS' | 'UNDETERMINED' | 'UNREACHABLE'
  readonly message: string
  /** The first step that fails. */
  readonly failing?: number
  /** The command to run next, and the cluster in which to run it unless that is the caller's. */
  readonly next?: string
  readonly nextAt?: string
  readonly ways: readonly WayRow[]
  readonly waysLeftOut: number
  readonly steps: readonly StepRow[]
  readonly stepsLeftOut: number
  readonly notAsked: readonly string[]
}

export interface WayRow {
  readonly cluster: string
  /** In 1/10,000. */
  readonly share?: number
  readonly outcome: ExplainedPath['outcome']
  readonly failing?: number
}

export interface StepRow {
  readonly seq: number
  readonly way?: string
  readonly isBack: boolean
  readonly station: string
  readonly cluster: string
  readonly node?: string
  readonly component: string
  readonly decision: PathStep['decision']
  readonly reason?: string
  readonly message: string
  /** A packet that the step rewrites: before and after. */
  readonly rewrites?: string
  readonly notes: readonly string[]
  readonly evidence: PathStep['evidence']
  readonly source: string
  readonly ageSeconds: number
}

/** `flags` name the target in a command; `whole` are those of the command that explains the same. */
export function planPath(found: PathExplanation | WrongPath, flags: string, whole = flags): PathAnswer {
  if ('wrong' in found) return wrongPath(found.wrong, found.hint)
  const { takenAt, from, to, outcome, message, failing, next, nextAt, ways, waysLeftOut, steps, notAsked } = found
  return {
    t: 'explained',
    command: clipped(`sealane explain ${word(from)} ${word(to)} ${whole}`, MAX_MESSAGE),
    ...{ takenAt: clipped(takenAt), from: clipped(from, MAX_MESSAGE), to: clipped(to, MAX_MESSAGE), outcome },
    message: clipped(message, MAX_MESSAGE),
    ...(failing === undefined ? {} : { failing: failing.seq }),
    ...(next === undefined || outcome === 'REACHABLE' ? {} : nextOf(next, nextAt, flags)),
    ways: ways.slice(0, MOST_TEXTS).map((way) => ({
      ...{ cluster: clipped(way.cluster), outcome: way.outcome },
      ...numbers({ share: way.share, failing: way.failing?.seq }),
    })),
    waysLeftOut: waysLeftOut + Math.max(0, ways.length - MOST_TEXTS),
    steps: steps.slice(0, MOST_STEPS).map(stepRow),
    stepsLeftOut: Math.max(0, steps.length - MOST_STEPS),
    notAsked: notAsked.slice(0, MOST_TEXTS).map((text) => clipped(text, MAX_MESSAGE)),
  }
}

export interface WrongPath {
  readonly wrong: string
  readonly hint: string
}

/** An answer about what was typed. */
export function wrongPath(wrong: string, hint: string): WrongAnswer {
  return { t: 'wrong', wrong: clipped(wrong, MAX_MESSAGE), hint: clipped(hint, MAX_MESSAGE) }
}

export function failedPath(why: string): FailedAnswer {
  return { t: 'failed', why: clipped(why, MAX_MESSAGE) }
}

/** A command for another cluster has other flags, which only that cluster's operator knows. */
function nextOf(next: string, nextAt: string | undefined, flags: string): Pick<ExplainedPath, 'next' | 'nextAt'> {
  if (nextAt === undefined) return { next: clipped(withFlags(next, flags), MAX_MESSAGE) }
  return { next: clipped(next, MAX_MESSAGE), nextAt: clipped(nextAt) }
}

function stepRow(step: PathStep): StepRow {
  const { seq, way, direction, station, cluster, node, component, decision, reason, message, notes } = step
  const rewrites = rewriteText(step)
  return {
    seq,
    ...(way === undefined ? {} : { way: clipped(way) }),
    ...{ isBack: direction === 'return', station, cluster: clipped(cluster) },
    ...(node === undefined ? {} : { node: clipped(node) }),
    ...{ component: clipped(component), decision },
    ...(reason === undefined ? {} : { reason: clipped(reason) }),
    message: clipped(message, MAX_MESSAGE),
    ...(rewrites === undefined ? {} : { rewrites }),
    notes: notes.slice(0, MOST_NOTES).map((note) => clipped(note, MAX_MESSAGE)),
    ...{ evidence: step.evidence, source: clipped(step.source), ageSeconds: step.ageSeconds },
  }
}

function rewriteText({ input, output }: PathStep): string | undefined {
  if (input === undefined || output === undefined) return undefined
  const [before, after] = [tupleText(input), tupleText(output)]
  return before === after ? undefined : clipped(`${before} becomes ${after}`, MAX_MESSAGE)
}

function tupleText({ protocol, source = '?', destination = '?', port }: NonNullable<PathStep['input']>): string {
  const bracketed = destination.includes(':') && port !== undefined ? `[${destination}]` : destination
  return `${protocol} ${source} > ${bracketed}${port === undefined ? '' : `:${port}`}`
}

/** Brackets mean something to a shell. */
function word(text: string): string {
  return /^[\w.:/@-]+$/.test(text) ? text : `'${text.replaceAll("'", '')}'`
}
