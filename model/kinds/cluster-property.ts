/** The description of ClusterProperty. */
import { asShared, map, object, text } from './fields.ts'

const SPEC = map({ value: text('Its value.', { minLength: 1 }) }, 'The property.')
const WORDS = 'A fact about this cluster that tools of several clusters go by, such as its id.'

/** About API (KEP-2149): a fact about this cluster. Cluster-scoped. */
export const CLUSTER_PROPERTY_FIELDS = object(WORDS, {
  spec: asShared(SPEC, SPEC.optional()),
  status: map({}, 'Not used yet.').optional(),
})

/** The same in v1alpha1, which has no status. */
export const CLUSTER_PROPERTY_ALPHA_FIELDS = object(WORDS, { spec: SPEC })
