/**
 * Which prefixes of other clusters may hold what a node needs for itself: everything but space that nobody outside a
 * clusterset or an organisation has. Pure.
 */
import { type Prefix, containsPrefix, parsePrefix } from './ip.ts'
import { UNGRANTED_SPACE } from './needed-ranges.ts'

/** RFC 1112 section 4: nobody routes it. Our own default ranges are there, and no member may state it unasked. */
const CLASS_E = parsePrefix('240.0.0.0/4')

/** Whether any part of the prefix is public. `globalRange`: of this clusterset, which is ours wherever it lies. */
export function isPublicSpace(prefix: Prefix, globalRange: string | undefined): boolean {
  const ours = globalRange === undefined ? [] : [parsePrefix(globalRange)]
  const closed = [...UNGRANTED_SPACE, CLASS_E, ...ours]
  return !closed.some((space) => space.family === prefix.family && containsPrefix(space, prefix))
}
