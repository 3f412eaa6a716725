/** Explains one call: which stations it passes, what each decides and why, and where it ends. Pure. */
export { type Outcome, type PathExplanation, type PathStep, STATIONS } from './document.ts'
export { type ExplainedCall, type PathQuestion, type PathSides, explainCall, explainPath } from './explain-path.ts'
export type { PathObjects, PathSide } from './member-view.ts'
export {
  MOST_TRACE_SECONDS,
  PROBE_PACKETS,
  PROBE_REPORT,
  PROBE_SECONDS,
  PROBE_TASK,
  type ProbeDocument,
  type ProbeReport,
  type ProbeTask,
} from './packet-probe.ts'
export { type PathFrom, type PathTo, parseFrom, parseTo } from './path-ends.ts'
export { type ProbePlace, noProbe, planProbe, withProbe } from './plan-probe-end.ts'
export type { CallPackets } from './probe-packets.ts'
export { type Effect, ON_PATH } from './reasons-on-path.ts'
export { type SharesObjects, ofOneFamily, sharesWorld } from './shares.ts'
export type { WrongQuestion } from './trip.ts'
