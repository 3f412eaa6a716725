/** Looks at members at an interval: at one, or at several contexts, each at its own pace. Explains calls between them. */
export type { ConsoleSource, ContextSource, Looks, LooksSink, PathEnds } from './source.ts'
export { lookAtOne } from './look-at-one.ts'
export { lookAtSeveral } from './look-at-several.ts'
