/** Facts of two members of one clusterset, each with its report about the other. */
import { type ObjectsByKind, SELF, copyOf, factSet, healthyObjects } from './member-facts.ts'
import type { FactSet } from '../../../explain/facts/fact.ts'

export const OTHER = 'paris'

/** Swaps the two members in the facts of the first, which gives those of the second. */
function mirrored<T>(value: T): T {
  const words = (from: string, to: string) => (text: string) => text.replaceAll(from, to)
  const steps = [words(SELF, '\u0001'), words(OTHER, SELF), words('\u0001', OTHER)]
  return JSON.parse(steps.reduce((text, step) => step(text), JSON.stringify(value))) as T
}

/** Both members are healthy and agree; `change` breaks the objects of one of them. */
export function twoMembers(
  change: (objects: { readonly milano: ObjectsByKind; readonly paris: ObjectsByKind }) => void = () => undefined,
): readonly [FactSet, FactSet] {
  const milano = copyOf(healthyObjects({ others: [OTHER], kubernetes: false }))
  const paris = mirrored(milano)
  paris.Cluster = copyOf(milano).Cluster ?? []
  paris.Endpoint = copyOf(milano).Endpoint ?? []
  change({ milano, paris })
  return [factSet(milano), { ...factSet(paris), target: 'site paris' }]
}
