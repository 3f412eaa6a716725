/**
 * To whom an exporter offers a service. An offer travels with the record of the export: the exporter has resolved
 * selectors of clusters to ids, and leaves the choice of namespaces to the cluster of the caller, which alone knows the
 * namespaces of its pods. Pure.
 */
import { type ClusterId, type LabelSelector, type Offer, isDnsLabel } from '../model.ts'
import { MAX_POLICY_ENTRIES, MAX_POLICY_NAMESPACES } from '../values/values.ts'
import { hasOnly, matchesLabels } from './match-labels.ts'

export const TO_ALL: Offer = undefined
export const TO_NOBODY: Offer = []

/** Ours: the most rules of an offer, since each AccessPolicy adds its own. */
export const MAX_OFFER_RULES = 4 * MAX_POLICY_ENTRIES
/** Ours: the most ids in all rules of one offer. */
export const MAX_OFFERED_IDS = 4000
/** Ours: the most characters of one offer as JSON, so that its record has room for the rest of the export. */
export const MAX_OFFER_LENGTH = 384 * 1024
const RULE_FIELDS = ['clusters', 'namespaces']

/** The ids of all members that the offer names, sorted. Undefined if it is offered to all. */
export function offeredClusters(offer: Offer): readonly ClusterId[] | undefined {
  return offer === undefined ? undefined : [...new Set(offer.flatMap(({ clusters }) => clusters))].sort()
}

/** Whether pods of the cluster may call, at least those of some namespace. */
export function isOfferedTo(offer: Offer, cluster: string): boolean {
  return offer === undefined || offer.some(({ clusters }) => (clusters as readonly string[]).includes(cluster))
}

export interface Caller {
  readonly cluster: string
  /** While the labels are not known, only selectors without requirements match. */
  readonly namespace: { readonly name: string; readonly labels?: Readonly<Record<string, string>> }
}

/** Whether the offer covers the caller. The caller is in another cluster than the exporter. */
export function mayCall(offer: Offer, { cluster, namespace }: Caller): boolean {
  if (offer === undefined) return true
  return offer.some((rule) => {
    if (!hasOnly(rule, RULE_FIELDS) || !(rule.clusters as readonly string[]).includes(cluster)) return false
    const { namespaces } = rule
    if (namespaces === undefined) return true
    const { names, selectors } = namespaces
    if (names.includes(namespace.name)) return true
    const { labels } = namespace
    return selectors.some((one) => (labels === undefined ? isForAll(one) : matchesLabels(one, labels)))
  })
}

function isForAll(selector: LabelSelector): boolean {
  return Object.keys(selector).length === 0
}

/** Whether two offers say the same in the same order. */
export function sameOffer(one: Offer, other: Offer): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other)
}

/** What is wrong about an offer that another cluster sent; undefined if nothing is. */
export function offerProblem(offer: Offer): string | undefined {
  if (offer === undefined) return undefined
  if (offer.length > MAX_OFFER_RULES) return `${offer.length} rules: expected at most ${MAX_OFFER_RULES}`
  const ids = offer.reduce((sum, { clusters }) => sum + clusters.length, 0)
  if (ids > MAX_OFFERED_IDS) return `${ids} cluster ids: expected at most ${MAX_OFFERED_IDS}`
  for (const { clusters, namespaces } of offer) {
    const { names = [], selectors = [] } = namespaces ?? {}
    const wrong = [...clusters, ...names].find((name) => !isDnsLabel(name))
    if (wrong !== undefined) return `${JSON.stringify(wrong.slice(0, 80))}: expected an RFC 1123 label`
    const most = Math.max(names.length, selectors.length)
    if (most > MAX_POLICY_NAMESPACES) return `${most} namespaces: expected at most ${MAX_POLICY_NAMESPACES}`
  }
  return undefined
}
