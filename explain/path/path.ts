/** Explains one call: which stations it passes, what each decides and why, and where it ends. Pure. */
export { type Outcome, type PathExplanation, type PathStep, STATIONS } from './document.ts'
export { type PathQuestion, type PathSides, explainPath } from './explain-path.ts'
export type { PathObjects, PathSide } from './member-view.ts'
export { type PathFrom, type PathTo, parseFrom, parseTo } from './path-ends.ts'
export { type Effect, ON_PATH } from './reasons-on-path.ts'
export { type SharesObjects, ofOneFamily, sharesWorld } from './shares.ts'
export type { WrongQuestion } from './trip.ts'
