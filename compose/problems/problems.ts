/** A member's own problems as metrics. */
export { memberInfo } from './problem-metrics.ts'
export { watchProblems } from './watch-problems.ts'
