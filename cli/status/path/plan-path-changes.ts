/** What differs between two explanations of one call, for `sealane explain --watch`. Pure. */
import type { PathExplanation, PathStep } from '../../../explain/path/path.ts'

/** One line for each change: the outcome, then steps in their order, then the probe. None for ages and measured values. */
export function pathChanges(before: PathExplanation, after: PathExplanation): readonly string[] {
  const had = byKey(before.steps)
  const has = byKey(after.steps)
  const steps = [...has].flatMap(([key, step]) => stepChange(key, had.get(key), step))
  const gone = [...had.keys()].filter((key) => !has.has(key)).map((key) => `${key}: the call does not come so far`)
  return [...outcomeChange(before, after), ...steps, ...gone, ...probeChange(before, after)]
}

function byKey(steps: readonly PathStep[]): ReadonlyMap<string, PathStep> {
  return new Map(steps.map((step) => [keyOf(step), step]))
}

function keyOf({ station, direction, way, cluster, seq }: PathStep): string {
  const of = way === undefined || way === cluster ? cluster : `${cluster}, to ${way}`
  // Two stations of the way back have one name.
  const back = direction === 'return' ? ` (back, ${cluster})` : ` (${of})`
  return station === 'caller' && seq > 1 ? `${station} ${seq}` : `${station}${back}`
}

function stepChange(key: string, had: PathStep | undefined, step: PathStep): readonly string[] {
  if (had === undefined) return [`${key}: ${decisionText(step)}: ${step.message}`]
  const [was, is] = [decisionText(had), decisionText(step)]
  if (was !== is) return [`${key}: ${is}, was ${was}: ${step.message}`]
  const isSame = steady(had.message) === steady(step.message) && had.node === step.node && had.object === step.object
  return isSame ? [] : [`${key}: ${step.message}`]
}

function decisionText({ decision, reason }: PathStep): string {
  return reason === undefined ? decision : `${decision} (${reason})`
}

/** Without measured values, which differ each time. */
function steady(text: string): string {
  return text.replaceAll(/\d+(?:\.\d+)?(?= (?:ms|s|%)(?:\W|$))/g, '#')
}

function outcomeChange(before: PathExplanation, after: PathExplanation): readonly string[] {
  if (before.outcome !== after.outcome) return [`${after.outcome}, was ${before.outcome}: ${after.message}`]
  return steady(before.message) === steady(after.message) ? [] : [`${after.outcome}: ${after.message}`]
}

function probeChange({ probe: before }: PathExplanation, { probe: after }: PathExplanation): readonly string[] {
  if (before === undefined || after === undefined) return []
  const place = ({ result, cluster, end }: NonNullable<PathExplanation['probe']>): string =>
    JSON.stringify([result, cluster, end?.station, end?.node, end?.table, end?.chain, end?.direction])
  return place(before) === place(after) ? [] : [`probe: ${after.result}, was ${before.result}: ${after.message}`]
}
