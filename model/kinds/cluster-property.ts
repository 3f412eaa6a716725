/** The description of ClusterProperty. */
import { asShared, map, object, text } from './fields.ts'

const SPEC = map({ value: text('Value of the property.', { minLength: 1 }) }, 'The property and its value.')
const WORDS = 'A property of this cluster for multi-cluster tools, such as its id.'

/** About API (KEP-2149): a fact about this cluster. Cluster-scoped. */
export const CLUSTER_PROPERTY_FIELDS = object(WORDS, {
  spec: asShared(SPEC, SPEC.optional()),
  status: map({}, 'Reserved; not used.').optional(),
})

/** The same in v1alpha1, which has no status. */
export const CLUSTER_PROPERTY_ALPHA_FIELDS = object(WORDS, { spec: SPEC })
