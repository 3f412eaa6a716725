/** The description of what the checks of a slice's backends have found: the status of an EndpointSlice at a site. */
import { type Described, flag, list, map, text, timestamp } from './fields.ts'

const BACKEND = map({
  /** The first address of the endpoint, as the slice has it. */
  address: text(),
  up: flag(),
  /** RFC 3339 time of the last change of `up`, or of the first result. */
  since: timestamp(),
  /** Why the check failed. Absent while the backend is up. */
  message: text().optional(),
})

/** An EndpointSlice has no status in discovery.k8s.io/v1: this one exists only in the state of a site. */
export const BACKEND_HEALTH = map({
  /** The check that gave the results, as the slice's annotation had it. Results of another check do not count. */
  check: text(),
  /** Backends with a result. A backend without one counts as the slice says. */
  backends: list(BACKEND),
})
export type BackendHealth = Described<typeof BACKEND_HEALTH>
