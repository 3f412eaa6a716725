/** Which versions of which parts run, as far as they say it themselves. Pure. */
import type { World } from '../world.ts'

export interface PartVersion {
  readonly part: string
  readonly version: string
  /** How many of the part say so. */
  readonly count: number
}

/** By part, then by version. */
export function partVersions({ objects, reports }: World): readonly PartVersion[] {
  const said = [
    ...(objects.Gateway ?? []).map(({ object }) => ['gateway', object.status?.version] as const),
    ...(objects.RouteAgent ?? []).map(({ object }) => ['routeagent', object.status?.version] as const),
    ...reports.map(({ object }) => [object.part, object.version] as const),
  ]
  const counts = new Map<string, PartVersion>()
  for (const [part, version] of said) {
    if (version === undefined) continue
    const key = `${part} ${version}`
    counts.set(key, { part, version, count: (counts.get(key)?.count ?? 0) + 1 })
  }
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row)
}
