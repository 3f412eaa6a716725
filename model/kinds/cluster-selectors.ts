/** The descriptions of cluster selectors and their results, which ServiceExport and ServiceImport share (KEP-5939). */
import { MAX_CLUSTER_SELECTORS, MAX_NAME, MAX_PROPERTY_VALUE, MAX_SELECTOR_ENTRIES } from '../values/values.ts'
import { VALUES_OF_OPERATOR } from './access-policy.ts'
import { type Described, type Rule, choice, list, map, text, textMap } from './fields.ts'

const REQUIREMENT = map(
  {
    key: text('Name of the ClusterProperty.', { minLength: 1, maxLength: MAX_NAME }),
    operator: choice(['In', 'NotIn', 'Exists', 'DoesNotExist'], 'In, NotIn, Exists or DoesNotExist.'),
    values: list(
      text('One value, or @SameAsImporter@ for that of the importing cluster.', { maxLength: MAX_PROPERTY_VALUE }),
      'Values for In and NotIn.',
      MAX_SELECTOR_ENTRIES,
    ).optional(),
  },
  'A requirement of a property.',
  { 'x-kubernetes-validations': [VALUES_OF_OPERATOR] },
)

/** A selector of ClusterProperties, all of whose parts must be met. */
export const propertySelector = (what: string, rules: readonly Rule[] = []) =>
  map(
    {
      matchProperties: textMap(
        'Properties and their values, or @SameAsImporter@ for that of the importing cluster.',
        { maxProperties: MAX_SELECTOR_ENTRIES },
        { maxLength: MAX_PROPERTY_VALUE },
      ).optional(),
      matchExpressions: list(REQUIREMENT, 'Requirements that must all be met.', MAX_SELECTOR_ENTRIES).optional(),
    },
    what,
    rules.length === 0 ? {} : { 'x-kubernetes-validations': rules },
  )

const PROPERTY_SELECTOR = propertySelector('Selects clusters by their ClusterProperties. It is not empty.')
/** The part of an entry that selects by ClusterProperties. */
export type PropertySelector = Described<typeof PROPERTY_SELECTOR>

const CLUSTER_SELECTOR = map({ propertySelector: PROPERTY_SELECTOR.optional() }, 'One selector: one field is set.')
/** One entry of `clusterSelectors`. A later release may have other fields in it. */
export type ClusterSelector = Described<typeof CLUSTER_SELECTOR>

export const CLUSTER_SELECTORS = list(
  CLUSTER_SELECTOR,
  'Clusters that calls go to, in this order: the first selector with an endpoint that can be used counts.',
  MAX_CLUSTER_SELECTORS,
)

export const CLUSTER_SELECTOR_RESULTS = list(
  map(
    { clusters: list(text('Id of the exporting cluster.'), 'Clusters that the selector matches.') },
    'What one selector matches.',
  ),
  'Matched clusters of each selector, in the order of the selectors.',
  MAX_CLUSTER_SELECTORS,
)
