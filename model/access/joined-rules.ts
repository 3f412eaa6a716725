/**
 * Joins the rules of many policies to few: an offer has limits, and a policy without ids names each member that joins.
 * Pure.
 */
import type { ClusterId, LabelSelector, NamespaceChoice, OfferRule } from '../model.ts'
import { MAX_POLICY_NAMESPACES } from '../values/values.ts'
import { MAX_OFFERED_IDS, MAX_OFFER_LENGTH, MAX_OFFER_RULES } from './offer.ts'

export interface JoinedRules {
  readonly rules: readonly OfferRule[]
  /** More was named than an offer carries: fewer may call. */
  readonly isCut: boolean
}

/** The members of some rules, and the namespaces of them all. */
interface Part {
  readonly clusters: Set<ClusterId>
  readonly names: Set<string>
  /** By their text. */
  readonly selectors: Map<string, LabelSelector>
}

/**
 * Rules for all namespaces become one, and so do those of the same members, and those of the same namespaces. What does
 * not fit in an offer is cut.
 */
export function joinedRules(rules: readonly OfferRule[]): JoinedRules {
  const whole = new Set(rules.flatMap(({ clusters, namespaces }) => (namespaces === undefined ? clusters : [])))
  const byMembers = new Map<string, Part>()
  for (const { clusters, namespaces } of rules) {
    const left = [...new Set(clusters)].filter((id) => !whole.has(id)).sort()
    if (namespaces !== undefined && left.length > 0) add(byMembers, left.join(), left, namespaces)
  }
  const byNamespaces = new Map<string, Part>()
  for (const part of byMembers.values()) {
    const choice = choiceOf(part)
    add(byNamespaces, JSON.stringify(choice), part.clusters, choice)
  }
  const open: OfferRule[] = whole.size === 0 ? [] : [{ clusters: [...whole].sort() }]
  return cut([...open, ...[...byNamespaces.values()].flatMap(chunked)])
}

function add(parts: Map<string, Part>, key: string, clusters: Iterable<ClusterId>, choice: NamespaceChoice): void {
  let part = parts.get(key)
  if (part === undefined) parts.set(key, (part = { clusters: new Set(), names: new Set(), selectors: new Map() }))
  for (const id of clusters) part.clusters.add(id)
  for (const name of choice.names) part.names.add(name)
  for (const selector of choice.selectors) part.selectors.set(JSON.stringify(selector), selector)
}

function choiceOf({ names, selectors }: Part): NamespaceChoice {
  const texts = [...selectors].sort(([a], [b]) => (a < b ? -1 : 1))
  return { names: [...names].sort(), selectors: texts.map(([, selector]) => selector) }
}

function chunked(part: Part): readonly OfferRule[] {
  const { names, selectors } = choiceOf(part)
  const clusters = [...part.clusters].sort()
  // A rule without namespaces stays: the author is to see that it lets in nobody.
  const count = Math.max(1, Math.ceil(Math.max(names.length, selectors.length) / MAX_POLICY_NAMESPACES))
  return Array.from({ length: count }, (_, i) => {
    const [from, to] = [i * MAX_POLICY_NAMESPACES, (i + 1) * MAX_POLICY_NAMESPACES]
    return { clusters, namespaces: { names: names.slice(from, to), selectors: selectors.slice(from, to) } }
  })
}

function cut(rules: readonly OfferRule[]): JoinedRules {
  const kept: OfferRule[] = []
  let [ids, length] = [MAX_OFFERED_IDS, MAX_OFFER_LENGTH]
  for (const rule of rules) {
    const clusters = rule.clusters.slice(0, ids)
    const fits = clusters.length === rule.clusters.length ? rule : { ...rule, clusters }
    length -= JSON.stringify(fits).length
    if (kept.length === MAX_OFFER_RULES || clusters.length === 0 || length < 0) return { rules: kept, isCut: true }
    ids -= clusters.length
    kept.push(fits)
    if (fits !== rule) return { rules: kept, isCut: true }
  }
  return { rules: kept, isCut: false }
}
