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
  /** Lists that are sorted. One id may be in several. */
  readonly clusters: (readonly ClusterId[])[]
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
    if (namespaces === undefined) continue
    const { ids, key } = membersOf(whole.size === 0 ? clusters : clusters.filter((id) => !whole.has(id)))
    // The parts of the same members have the same list.
    if (ids.length > 0) add(byMembers, key, byMembers.has(key) ? undefined : ids, namespaces)
  }
  const byNamespaces = new Map<string, Part>()
  for (const part of byMembers.values()) {
    const choice = choiceOf(part)
    for (const ids of part.clusters) add(byNamespaces, JSON.stringify(choice), ids, choice)
  }
  const open: OfferRule[] = whole.size === 0 ? [] : [{ clusters: [...whole].sort() }]
  return cut([...open, ...[...byNamespaces.values()].flatMap(chunked)])
}

/**
 * Joins the rules of single services to the same shared ones. Ten thousand services of a namespace may each have a
 * policy of their own, and the shared rules may name all members.
 */
export class RulesJoiner {
  readonly shared: JoinedRules
  readonly #whole: ReadonlySet<ClusterId>
  /** The members of each shared rule, and the namespaces of each. */
  readonly #keys: ReadonlySet<string>
  readonly #size: OfferSize
  readonly #known = new WeakMap<readonly OfferRule[], JoinedRules>()

  constructor(shared: readonly OfferRule[]) {
    this.shared = joinedRules(shared)
    const { rules } = this.shared
    this.#whole = new Set(rules.flatMap(({ clusters, namespaces }) => (namespaces === undefined ? clusters : [])))
    this.#keys = new Set(rules.flatMap(keysOf))
    this.#size = sizeOf(rules)
  }

  /** The same array of rules gives the same object. */
  with(own: readonly OfferRule[]): JoinedRules {
    let joined = this.#known.get(own)
    if (joined === undefined) this.#known.set(own, (joined = this.#joined(own)))
    return joined
  }

  #joined(own: readonly OfferRule[]): JoinedRules {
    const { shared } = this
    return this.#besideShared(own) ?? joinedRules([...shared.rules, ...own])
  }

  /** Undefined if a rule changes a shared one, or not all fit in an offer. */
  #besideShared(own: readonly OfferRule[]): JoinedRules | undefined {
    const left = own.flatMap((rule) => {
      if (this.#whole.size === 0) return rule.clusters.length === 0 ? [] : [rule]
      const clusters = rule.clusters.filter((id) => !this.#whole.has(id))
      return clusters.length === 0 ? [] : [{ ...rule, clusters }]
    })
    if (left.length === 0) return { rules: this.shared.rules, isCut: false }
    if (left.some((rule) => rule.namespaces === undefined || this.#keys.has(membersOf(rule.clusters).key)))
      return undefined
    const { rules, isCut } = joinedRules(left)
    if (isCut || rules.flatMap(keysOf).some((key) => this.#keys.has(key))) return undefined
    const [one, other] = [this.#size, sizeOf(rules)]
    const isWithin =
      one.rules + other.rules <= MAX_OFFER_RULES &&
      one.ids + other.ids <= MAX_OFFERED_IDS &&
      one.length + other.length <= MAX_OFFER_LENGTH
    return isWithin ? { rules: [...this.shared.rules, ...rules], isCut: false } : undefined
  }
}

interface OfferSize {
  readonly rules: number
  readonly ids: number
  /** Of the rules as JSON. */
  readonly length: number
}

function sizeOf(rules: readonly OfferRule[]): OfferSize {
  return {
    rules: rules.length,
    ids: rules.reduce((sum, { clusters }) => sum + clusters.length, 0),
    length: rules.reduce((sum, rule) => sum + JSON.stringify(rule).length, 0),
  }
}

/** Rules with a key in common can be joined. */
function keysOf({ clusters, namespaces }: OfferRule): readonly string[] {
  return namespaces === undefined ? [] : [membersOf(clusters).key, JSON.stringify(namespaces)]
}

/** Callers by the same ids or selector have the same list. */
const MEMBERS = new WeakMap<readonly ClusterId[], { readonly ids: readonly ClusterId[]; readonly key: string }>()

/** The ids, sorted, each once, and a key that other ids do not have. */
function membersOf(clusters: readonly ClusterId[]): { readonly ids: readonly ClusterId[]; readonly key: string } {
  let known = MEMBERS.get(clusters)
  if (known === undefined) {
    const ids = [...new Set(clusters)].sort()
    MEMBERS.set(clusters, (known = { ids, key: ids.join() }))
  }
  return known
}

function add(
  parts: Map<string, Part>,
  key: string,
  clusters: readonly ClusterId[] | undefined,
  choice: NamespaceChoice,
): void {
  let part = parts.get(key)
  if (part === undefined) parts.set(key, (part = { clusters: [], names: new Set(), selectors: new Map() }))
  if (clusters !== undefined) part.clusters.push(clusters)
  for (const name of choice.names) part.names.add(name)
  for (const selector of choice.selectors) part.selectors.set(JSON.stringify(selector), selector)
}

function choiceOf({ names, selectors }: Part): NamespaceChoice {
  const texts = [...selectors].sort(([a], [b]) => (a < b ? -1 : 1))
  return { names: [...names].sort(), selectors: texts.map(([, selector]) => selector) }
}

function chunked(part: Part): readonly OfferRule[] {
  const { names, selectors } = choiceOf(part)
  const [first = [], ...others] = part.clusters
  const clusters = others.length === 0 ? first : [...new Set(part.clusters.flat())].sort()
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
