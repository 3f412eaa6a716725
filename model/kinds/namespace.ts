/** The description of Namespace. */
import { map, text } from './fields.ts'

/** Cluster-scoped. */
export const NAMESPACE_FIELDS = map({ status: map({ phase: text().optional() }).optional() })
