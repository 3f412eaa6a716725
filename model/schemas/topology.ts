/** Reads a topology that an operator wrote. Pure. */
import { TOPOLOGY_FIELDS } from '../kinds/kinds.ts'
import { isUnderstoodSelector } from '../access/access.ts'
import { namedClusters } from '../lanes/lanes.ts'
import type { Topology } from '../model.ts'
import { MAX_TOPOLOGY_CLUSTERS, MAX_TOPOLOGY_NAMES } from '../values/values.ts'
import { type FieldPath, pathText } from './complaints.ts'

/** The one field that a mode takes, which must be there; undefined for none. */
const FIELD_OF = { full: undefined, groups: 'groups', 'hub-and-spoke': 'hubs', pairs: 'pairs' } as const
const FIELDS = ['groups', 'hubs', 'pairs'] as const

export type ReadTopology =
  | { readonly topology: Topology }
  /** `wrong` names the field, the value and what was expected. */
  | { readonly field: string; readonly wrong: string }

/**
 * Checks a topology as an operator or the wire states it. Names are sorted, each once, so that two topologies that say
 * the same are equal.
 */
export function readTopology(value: unknown): ReadTopology {
  const parsed = TOPOLOGY_FIELDS.safeParse(value)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    return wrong(issue?.path ?? [], `expected ${issue?.message ?? 'a map'}`)
  }
  const unknown = unknownPath(value, parsed.data)
  if (unknown !== undefined) return wrong(unknown, 'unknown field')
  const topology = sorted(parsed.data as Topology)
  return problemOf(topology) ?? { topology }
}

function problemOf(topology: Topology): Extract<ReadTopology, { readonly field: string }> | undefined {
  const { mode, groups = [], hubs = [], via, pairs = [] } = topology
  const own = FIELD_OF[mode]
  for (const field of FIELDS) {
    const isGiven = topology[field] !== undefined
    if (isGiven && field !== own) return wrong([field], `expected none with mode ${mode}`)
    if (field === own && (topology[field] ?? []).length === 0)
      return wrong([field], `expected at least one with mode ${mode}`)
  }
  if (via !== undefined) {
    if (mode !== 'hub-and-spoke') return wrong(['via'], `expected none with mode ${mode}`)
    // Links through nobody would never come up, whatever their author meant.
    if (via.length === 0) return wrong(['via'], 'expected at least one hub, or no such field')
    const other = via.findIndex((id) => !hubs.includes(id))
    if (other >= 0) return wrong(['via'], `"${via[other] ?? ''}": expected one of hubs`)
  }
  const names = new Set<string>()
  for (const [i, { name }] of groups.entries()) {
    if (names.has(name)) return wrong(['groups', i, 'name'], `"${name}": another group has this name`)
    names.add(name)
  }
  for (const [i, pair] of pairs.entries()) {
    if (pair.via?.length === 0) return wrong(['pairs', i, 'via'], 'expected at least one cluster, or no such field')
    for (const side of ['between', 'and'] as const) {
      // A side that was left empty by mistake would link with everything.
      if (pair[side].clusters === undefined && pair[side].selector === undefined)
        return wrong(['pairs', i, side], 'expected clusters or selector; an empty selector stands for all members')
      const { selector = {} } = pair[side]
      // It would match nothing, whatever its author meant.
      if (!isUnderstoodSelector(selector))
        return wrong(['pairs', i, side, 'selector'], 'expected values with In and NotIn, and none with other operators')
    }
  }
  const named = namedClusters(topology).length
  if (named > MAX_TOPOLOGY_CLUSTERS) return wrong([], `${named} clusters: expected at most ${MAX_TOPOLOGY_CLUSTERS}`)
  const all = countOf(topology)
  return all > MAX_TOPOLOGY_NAMES ? wrong([], `${all} names: expected at most ${MAX_TOPOLOGY_NAMES}`) : undefined
}

function countOf({ groups = [], hubs = [], via = [], pairs = [] }: Topology): number {
  const sum = (lists: readonly (readonly string[] | undefined)[]): number =>
    lists.reduce((total, list) => total + (list?.length ?? 0), 0)
  return (
    hubs.length +
    via.length +
    sum(groups.map(({ clusters }) => clusters)) +
    sum(pairs.flatMap(({ between, and, via: through }) => [between.clusters, and.clusters, through]))
  )
}

/** Pairs without `via` come first: on the wire the others have a field of their own. */
function sorted({ mode, groups, hubs, via, pairs }: Topology): Topology {
  const ids = (list: readonly string[]): readonly string[] => [...new Set(list)].sort()
  const side = ({ clusters, selector }: NonNullable<Topology['pairs']>[number]['and']) => ({
    ...(clusters === undefined ? {} : { clusters: ids(clusters) }),
    ...(selector === undefined ? {} : { selector }),
  })
  return {
    mode,
    ...(groups === undefined
      ? {}
      : {
          groups: groups
            .map(({ name, clusters }) => ({ name, clusters: ids(clusters) }))
            .sort((a, b) => (a.name < b.name ? -1 : 1)),
        }),
    ...(hubs === undefined ? {} : { hubs: ids(hubs) }),
    ...(via === undefined ? {} : { via: ids(via) }),
    ...(pairs === undefined
      ? {}
      : {
          pairs: pairs
            .map(({ between, and, via: through }) => ({
              ...{ between: side(between), and: side(and) },
              ...(through === undefined ? {} : { via: ids(through) }),
            }))
            .sort((a, b) => Number(a.via !== undefined) - Number(b.via !== undefined)),
        }),
  }
}

/** The path of the first field that the description does not have, so that a misspelt one is not left out in silence. */
function unknownPath(given: unknown, kept: unknown, path: FieldPath = []): FieldPath | undefined {
  if (typeof given !== 'object' || given === null || typeof kept !== 'object' || kept === null) return undefined
  for (const [key, value] of Object.entries(given)) {
    const at = [...path, Array.isArray(given) ? Number(key) : key]
    if (!Object.hasOwn(kept, key)) return value === undefined ? undefined : at
    const found = unknownPath(value, (kept as Readonly<Record<string, unknown>>)[key], at)
    if (found !== undefined) return found
  }
  return undefined
}

function wrong(path: FieldPath, problem: string): { readonly field: string; readonly wrong: string } {
  const field = path.length === 0 ? 'topology' : pathText(path)
  return { field, wrong: `${field}: ${problem}` }
}
