/** Which versions of which parts run, as far as they say it themselves. Pure. */
import type { World } from '../world.ts'

export interface PartVersion {
  readonly part: string
  readonly version: string
  /** How many of the part say so. */
  readonly count: number
}

/** They say it in an object of their own, where everybody sees it. */
const IN_OBJECTS = new Set(['gateway', 'routeagent'])

/** By part, then by version. */
export function partVersions({ objects, reports }: World): readonly PartVersion[] {
  const said = [
    ...(objects.Gateway ?? []).map(({ object }) => ['gateway', object.status?.version] as const),
    ...(objects.RouteAgent ?? []).map(({ object }) => ['routeagent', object.status?.version] as const),
    ...reports.flatMap(({ object: { part, version } }) => (IN_OBJECTS.has(part) ? [] : [[part, version] as const])),
  ]
  const counts = new Map<string, PartVersion>()
  for (const [part, version] of said) {
    if (version === undefined) continue
    const key = `${part} ${version}`
    counts.set(key, { part, version, count: (counts.get(key)?.count ?? 0) + 1 })
  }
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row)
}
