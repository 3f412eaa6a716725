/**
 * Which namespaces of a cluster may call a service of another cluster, as the agent of the caller's cluster writes it
 * for its nodes, on each imported EndpointSlice. Pure.
 */
import type { ClusterId, EndpointSlice, LabelSelector, NamespaceChoice, Offer } from '../model.ts'
import { MAX_CALLERS_LENGTH } from '../values/values.ts'
import { isUnderstoodSelector, matchesLabels } from './match-labels.ts'
import { offeredClusters } from './offer.ts'

/**
 * On imported slices: the namespaces of this cluster that may call, as JSON of a NamespaceChoice, with `keepsOpen` if TCP
 * connections that are open go on when it is narrowed. Absent: all may.
 */
export const ANNOTATION_CALLERS = 'sealane.io/callers'

export const NO_NAMESPACE: NamespaceChoice = { names: [], selectors: [] }

export interface CallerNamespace {
  readonly name: string
  /** Undefined while they are not known: selectors then do not match. */
  readonly labels?: Readonly<Record<string, string>> | undefined
}

export function choosesNamespace({ names, selectors }: NamespaceChoice, { name, labels }: CallerNamespace): boolean {
  return names.includes(name) || (labels !== undefined && selectors.some((one) => matchesLabels(one, labels)))
}

/** Each name and selector once and in a fixed order, so that equal choices have one text. */
export function togetherChosen(choices: readonly NamespaceChoice[]): NamespaceChoice {
  const usable = choices.flatMap(({ selectors }) => selectors.filter(isUnderstoodSelector)).map(ordered)
  const texts = new Set(usable.map((selector) => JSON.stringify(selector)))
  return {
    names: [...new Set(choices.flatMap(({ names }) => names))].sort(),
    selectors: [...texts].sort().map((text) => JSON.parse(text) as LabelSelector),
  }
}

function ordered({ matchLabels, matchExpressions }: LabelSelector): LabelSelector {
  return {
    ...(matchLabels === undefined ? {} : { matchLabels: Object.fromEntries(Object.entries(matchLabels).sort()) }),
    ...(matchExpressions === undefined
      ? {}
      : {
          matchExpressions: matchExpressions.map(({ key, operator, values }) => ({
            key,
            operator,
            ...(values === undefined ? {} : { values }),
          })),
        }),
  }
}

/** The namespaces of the cluster that the offer names. Undefined: all. */
export function callersIn(offer: Offer, cluster: string): NamespaceChoice | undefined {
  const rules = offer?.filter(({ clusters }) => (clusters as readonly string[]).includes(cluster))
  if (rules === undefined || rules.some(({ namespaces }) => namespaces === undefined)) return undefined
  return togetherChosen(rules.flatMap(({ namespaces }) => namespaces ?? []))
}

/** The value of the annotation; undefined if all namespaces may call. What does not fit is cut: fewer may call. */
export function callersText(offer: Offer, cluster: string, keepsOpen = false): string | undefined {
  const choice = callersIn(offer, cluster)
  if (choice === undefined) return undefined
  const kept = keepsOpen ? { keepsOpen } : {}
  return JSON.stringify({ ...fitting(choice, keepsOpen), ...kept })
}

/** What of the choice fits into the annotation. */
function fitting(choice: NamespaceChoice, keepsOpen: boolean): NamespaceChoice {
  const kept = keepsOpen ? { keepsOpen } : {}
  let left = MAX_CALLERS_LENGTH - JSON.stringify({ ...NO_NAMESPACE, ...kept }).length
  const fits = (part: unknown): boolean => (left -= JSON.stringify(part).length + 1) >= 0
  return { names: choice.names.filter(fits), selectors: choice.selectors.filter(fits) }
}

/** The members, sorted, whose annotation would not carry all of their namespaces that the offer names. */
export function cutCallers(offer: Offer): readonly ClusterId[] {
  // The offer is longer than the choice of each member.
  if (offer === undefined || JSON.stringify(offer).length <= MAX_CALLERS_LENGTH / 2) return []
  return (offeredClusters(offer) ?? []).filter((id) => {
    const choice = callersIn(offer, id)
    if (choice === undefined) return false
    const { names, selectors } = fitting(choice, true)
    return names.length < choice.names.length || selectors.length < choice.selectors.length
  })
}

/** Whether the exporter lets open TCP connections go on. A text that this release does not understand ends them. */
export function keepsOpenCalls({ metadata }: Pick<EndpointSlice, 'metadata'>): boolean {
  const value = parsed(metadata.annotations?.[ANNOTATION_CALLERS])
  return isChoice(value) && (value as { readonly keepsOpen?: unknown }).keepsOpen === true
}

/** Undefined: all namespaces may call. A text that this release does not understand names none. */
export function callersOf({ metadata }: Pick<EndpointSlice, 'metadata'>): NamespaceChoice | undefined {
  const text = metadata.annotations?.[ANNOTATION_CALLERS]
  if (text === undefined) return undefined
  const value = parsed(text)
  return isChoice(value) ? { names: value.names, selectors: value.selectors } : NO_NAMESPACE
}

function parsed(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : JSON.parse(text)
  } catch {
    return undefined
  }
}

function isChoice(value: unknown): value is NamespaceChoice {
  if (!isMap(value)) return false
  const { names, selectors } = value
  return isListOf(names, isText) && isListOf(selectors, isSelector)
}

function isSelector(value: unknown): boolean {
  if (!isMap(value)) return false
  const { matchLabels = {}, matchExpressions = [] } = value
  const isRequirement = (one: unknown): boolean => isMap(one) && isListOf(one['values'] ?? [], isText)
  return isMap(matchLabels) && isListOf(matchExpressions, isRequirement)
}

function isListOf(value: unknown, isItem: (item: unknown) => boolean): boolean {
  return Array.isArray(value) && value.every(isItem)
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isText(value: unknown): value is string {
  return typeof value === 'string'
}
