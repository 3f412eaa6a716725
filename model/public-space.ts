/**
 * Which prefixes of other clusters may hold what a node needs for itself: everything but space that nobody outside a
 * clusterset or an organisation has. Pure.
 */
import { type Prefix, containsPrefix, parsePrefix } from './ip.ts'
import { DEFAULT_GLOBAL_RANGE } from './kernel-ids.ts'

/** RFC 1918, RFC 6598, RFC 1112 section 4 (class E, where our own ranges are), RFC 4193. */
const CLOSED_SPACE: readonly Prefix[] = [
  '10.0.0.0/8',
  '100.64.0.0/10',
  '172.16.0.0/12',
  '192.168.0.0/16',
  '240.0.0.0/4',
  DEFAULT_GLOBAL_RANGE,
  'fc00::/7',
].map((text) => parsePrefix(text))

/** Whether any part of the prefix is public. `globalRange`: of this clusterset, which is ours wherever it lies. */
export function isPublicSpace(prefix: Prefix, globalRange: string | undefined): boolean {
  const ours = globalRange === undefined ? [] : [parsePrefix(globalRange)]
  return ![...CLOSED_SPACE, ...ours].some((space) => space.family === prefix.family && containsPrefix(space, prefix))
}
