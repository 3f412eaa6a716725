/** How many members a clusterset may have. */
import { MAX_CLUSTER_INDEX } from '../addresses/addressing.ts'

/** Unless the broker is told otherwise. */
export const DEFAULT_MAX_MEMBERS = 1000
/** Each has a number of its own. */
export const MOST_MEMBERS = MAX_CLUSTER_INDEX
/** From this part on of what there is of something, the broker warns. */
export const NEARLY_FULL = 0.8
