/** By which addresses pods of other clusters call pods of this one, and are called. Pure. */
import { plannedFamilies, routedPrefixes } from '../../model/addresses/addressing.ts'
import { type Family, type Prefix, formatPrefix } from '../../model/addresses/ip.ts'
import { type World, named } from '../world.ts'

export interface OtherRange {
  readonly cluster: string
  readonly prefix: Prefix
}

/** Their pod CIDRs, or the global ones where they have them; IPv6 where pods here have it. What is no CIDR is left out. */
export function otherRanges({ objects, self }: World): readonly OtherRange[] {
  const clusters = (objects.Cluster ?? []).map(({ object }) => object)
  const own = clusters.find(({ spec }) => spec.id === self)
  const families = orNone<Family>(() => plannedFamilies(own))
  return clusters
    .filter((cluster) => cluster !== own)
    .flatMap(({ spec }) => orNone(() => routedPrefixes(spec)).map((prefix) => ({ cluster: spec.id, prefix })))
    .filter(({ prefix }) => families.includes(prefix.family))
}

/** `10.52.0.0/16 (paris), 10.62.0.0/16 (tokyo)` */
export function rangesText(ranges: readonly OtherRange[]): string {
  return named(ranges.map(({ cluster, prefix }) => `${formatPrefix(prefix)} (${cluster})`))
}

function orNone<T>(read: () => readonly T[]): readonly T[] {
  try {
    return read()
  } catch {
    return []
  }
}
