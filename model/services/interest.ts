/**
 * Which records a member asks its broker for: those of namespaces that exist in its cluster. A service has to be
 * imported in every namespace of the same name, so a namespace is what is asked for: its exports, their addresses and
 * EndpointSlices. Records about clusters and their gateways go to everybody. Pure.
 */
import { isDnsLabel } from '../ids.ts'
import type { RecordKey, RecordKind } from '../records.ts'

/** Names of namespaces. */
export type Interest = ReadonlySet<string>

/** Kubernetes supports 10,000 namespaces in a cluster. */
export const MAX_INTEREST = 10_000
/** Of all names together, so that they fit into one request. */
const MAX_CHARACTERS = 500_000

const FOLLOWING: ReadonlySet<RecordKind> = new Set(['ServiceExport', 'EndpointSlice', 'ClusterSetIP'])

/** Whether records of a kind are sent to who asks for their namespace only. */
export function followsInterest(kind: RecordKind): boolean {
  return FOLLOWING.has(kind)
}

/** Undefined: everything is asked for. */
export function isOfInterest(
  interest: Interest | undefined,
  { kind, namespace }: Pick<RecordKey, 'kind' | 'namespace'>,
): boolean {
  return interest === undefined || !followsInterest(kind) || interest.has(namespace)
}

/** Why an interest cannot be asked for; undefined: it can. */
export function interestProblem(interest: Interest): string | undefined {
  if (interest.size > MAX_INTEREST) return `${interest.size} namespaces: expected at most ${MAX_INTEREST}`
  let characters = 0
  for (const name of interest) {
    characters += name.length
    if (!isDnsLabel(name)) return `${JSON.stringify(name.slice(0, 80))}: expected an RFC 1123 label`
  }
  return characters > MAX_CHARACTERS ? `names of ${characters} characters: expected ${MAX_CHARACTERS}` : undefined
}

/** Names in both. */
export function bothOf(one: Interest, other: Interest): Interest {
  return new Set([...one].filter((name) => other.has(name)))
}

/** Names in the first that are not in the second. */
export function lackingIn(one: Interest, other: Interest): Interest {
  return new Set([...one].filter((name) => !other.has(name)))
}
