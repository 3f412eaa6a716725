/**
 * Which clusters the calls of a service go to, by the ClusterProperties of the clusters (KEP-5939). The readiness of
 * endpoints has no influence here. Pure.
 */
import {
  type ClusterSelector,
  InvalidNameError,
  type LabelSelector,
  type PropertySelector,
  type ServiceImportType,
  isObjectName,
} from '../model.ts'
import type { ReasonCode } from '../reasons/reasons.ts'
import { MAX_CLUSTER_SELECTORS, MAX_PROPERTY_VALUE } from '../values/values.ts'

/** Stands for the value that the importing cluster has. */
export const SAME_AS_IMPORTER = '@SameAsImporter@'

type Values = Readonly<Record<string, string>>

/** A cluster that may be selected. */
export interface ClusterCandidate {
  readonly id: string
  /** Its ClusterProperties. */
  readonly properties: Values
}

/** A selector whose values are those of one importer. */
export interface PreparedSelector {
  /** Takes clusters in any order. Gives the ids of those that it matches, sorted. */
  selectClusters(candidates: readonly ClusterCandidate[]): string[]
}

/** The clusters of each selector, in the order of the selectors: `status.clusterSelectorResults` of a ServiceImport. */
export type SelectorResults = readonly { readonly clusters: readonly string[] }[]

type Requirement = NonNullable<PropertySelector['matchExpressions']>[number]

const NAMES_ONE = 'one field, propertySelector'
const NOT_EMPTY = 'at least one entry in matchProperties or matchExpressions'
const OPERATORS = ['In', 'NotIn', 'Exists', 'DoesNotExist']

/**
 * Takes one selector and the properties of the importing cluster. Throws InvalidNameError, with the field, the value and
 * what was expected, for a selector that is invalid or that a later release wrote (KEP-5939).
 */
export function prepareSelector(selector: ClusterSelector, importer: Values): PreparedSelector {
  const wrong = entryProblem(selector)
  if (wrong !== undefined) throw new InvalidNameError(wrong.field, wrong.value, wrong.expected)
  const matches = matcher(requirementsOf(selector.propertySelector ?? {}), importer)
  return {
    selectClusters: (candidates) =>
      candidates
        .filter(({ properties }) => matches(properties))
        .map(({ id }) => id)
        .sort(),
  }
}

/**
 * Takes the selectors of a service, the properties of the importer, the exporting clusters, and the results that are in
 * force. Gives one result for each selector. If one cannot be evaluated, all of `before` stays.
 */
export function selectorResults(
  selectors: readonly ClusterSelector[],
  importer: Values,
  candidates: readonly ClusterCandidate[],
  before?: SelectorResults,
): SelectorResults | undefined {
  if (selectors.length === 0) return undefined
  if (selectors.length > MAX_CLUSTER_SELECTORS || selectors.some((one) => entryProblem(one) !== undefined))
    return before
  return selectors.map((one) => ({ clusters: prepareSelector(one, importer).selectClusters(candidates) }))
}

/** Why an export with selectors is not valid. */
export interface SelectorsProblem {
  readonly reason: Extract<ReasonCode, 'InvalidClusterSelector' | 'InvalidServiceType'>
  /** Path of the field, the value and what was expected. */
  readonly message: string
}

/** Takes `spec.clusterSelectors` of a ServiceExport and the type of its service. Undefined if nothing is wrong. */
export function clusterSelectorsProblem(
  selectors: readonly ClusterSelector[] | undefined,
  type: ServiceImportType,
): SelectorsProblem | undefined {
  if (selectors === undefined || selectors.length === 0) return undefined
  const field = 'spec.clusterSelectors'
  if (type === 'Headless') {
    const message = `${field}: the service is headless: expected none, or a service with a cluster IP`
    return { reason: 'InvalidServiceType', message }
  }
  const invalid = (message: string): SelectorsProblem => ({ reason: 'InvalidClusterSelector', message })
  if (selectors.length > MAX_CLUSTER_SELECTORS)
    return invalid(`${field}: ${selectors.length} entries: expected at most ${MAX_CLUSTER_SELECTORS}`)
  for (const [i, selector] of selectors.entries()) {
    const wrong = entryProblem(selector, `${field}[${i}]`)
    if (wrong !== undefined) return invalid(`${wrong.field}: ${shown(wrong.value)}: expected ${wrong.expected}`)
  }
  return undefined
}

interface Problem {
  readonly field: string
  readonly value: string
  readonly expected: string
}

function entryProblem(selector: ClusterSelector, field = 'clusterSelector'): Problem | undefined {
  const names = Object.keys(selector)
  const { propertySelector } = selector
  if (propertySelector === undefined || names.length !== 1) return { field, value: names.join(), expected: NAMES_ONE }
  return propertySelectorProblem(propertySelector, `${field}.propertySelector`)
}

/** What is wrong with a selector of properties, with paths below `field`. An empty one selects nothing it could name. */
export function propertySelectorProblem(selector: PropertySelector, field: string): Problem | undefined {
  const extra = Object.keys(selector).find((name) => name !== 'matchProperties' && name !== 'matchExpressions')
  if (extra !== undefined) return { field: `${field}.${extra}`, value: extra, expected: 'no such field' }
  const { matchProperties = {}, matchExpressions = [] } = selector
  const pairs = Object.entries(matchProperties)
  if (pairs.length + matchExpressions.length === 0) return { field, value: '', expected: NOT_EMPTY }
  for (const [key, value] of pairs) {
    const wrong = keyProblem(key, `${field}.matchProperties`) ?? valueProblem(value, `${field}.matchProperties.${key}`)
    if (wrong !== undefined) return wrong
  }
  for (const [i, one] of matchExpressions.entries()) {
    const at = `${field}.matchExpressions[${i}]`
    const wrong = keyProblem(one.key, `${at}.key`) ?? requirementProblem(one, at)
    if (wrong !== undefined) return wrong
  }
  return undefined
}

/** What is wrong with the operator and the values of a requirement. */
export function requirementProblem({ operator, values = [], ...rest }: Requirement, at: string): Problem | undefined {
  const extra = Object.keys(rest).find((name) => name !== 'key')
  if (extra !== undefined) return { field: `${at}.${extra}`, value: extra, expected: 'no such field' }
  if (!OPERATORS.includes(operator))
    return { field: `${at}.operator`, value: operator, expected: OPERATORS.join(', ').replace(/, (\w+)$/, ' or $1') }
  const hasValues = operator === 'In' || operator === 'NotIn'
  if (hasValues !== values.length > 0) {
    const expected = `${hasValues ? 'at least one value' : 'no values'} with ${operator}`
    return { field: `${at}.values`, value: values.join(), expected }
  }
  return values.map((value) => valueProblem(value, `${at}.values`)).find((wrong) => wrong !== undefined)
}

function keyProblem(key: string, field: string): Problem | undefined {
  return isObjectName(key) ? undefined : { field, value: key, expected: 'the name of a ClusterProperty' }
}

function valueProblem(value: string, field: string): Problem | undefined {
  const expected = `at most ${MAX_PROPERTY_VALUE} characters`
  return value.length > MAX_PROPERTY_VALUE ? { field, value, expected } : undefined
}

function shown(value: string): string {
  return JSON.stringify(value.length > 100 ? `${value.slice(0, 100)}…` : value)
}

/** All parts of a selector of properties as requirements; `k: v` means In [v]. */
export function requirementsOf({ matchProperties = {}, matchExpressions = [] }: PropertySelector): Requirement[] {
  const pairs = Object.entries(matchProperties)
  return [...pairs.map(([key, value]) => ({ key, operator: 'In' as const, values: [value] })), ...matchExpressions]
}

/** The same for a selector of labels. */
export function labelRequirements({ matchLabels = {}, ...rest }: LabelSelector): Requirement[] {
  return requirementsOf({ ...rest, matchProperties: matchLabels })
}

/**
 * Takes requirements that must all be met, and the importer's own values. Gives a test for the values of a cluster. If
 * the importer has no value where its own is asked for, nothing matches.
 */
export function matcher(requirements: readonly Requirement[], importer: Values): (values: Values) => boolean {
  const resolved = requirements.map(({ key, operator, values = [] }) => ({
    ...{ key, operator },
    values: values.map((value) => (value === SAME_AS_IMPORTER ? own(importer, key) : value)),
  }))
  if (resolved.some(({ values }) => values.includes(undefined))) return () => false
  return (values) => resolved.every(({ key, operator, values: wanted }) => meets(operator, own(values, key), wanted))
}

function meets(
  operator: Requirement['operator'],
  value: string | undefined,
  wanted: readonly (string | undefined)[],
): boolean {
  switch (operator) {
    case 'In':
      return value !== undefined && wanted.includes(value)
    case 'NotIn':
      return value === undefined || !wanted.includes(value)
    case 'Exists':
      return value !== undefined
    case 'DoesNotExist':
      return value === undefined
    default:
      // A word of a later release must not select more than its author meant.
      return false
  }
}

function own(values: Values, key: string): string | undefined {
  return Object.hasOwn(values, key) ? values[key] : undefined
}
