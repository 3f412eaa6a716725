/** Plans which backends are checked, and what their results mean. Pure. */
import type { BackendHealth, EndpointSlice } from '../../model/model.ts'
import { ANNOTATION_CHECK, type BackendCheck, checkOf, checkPort } from '../../model/services/services.ts'

/** One address of one slice to check. */
export interface CheckTarget {
  /** Unique among all targets. It changes with the check. */
  readonly key: string
  readonly address: string
  readonly port: number
  readonly check: BackendCheck
}

/** What the checks of one backend have found. */
export interface BackendState {
  /** Undefined until enough results agree: the backend then counts as its slice says. */
  readonly up: boolean | undefined
  /** The results in a row that contradict `up`, or that agree with each other while it is undefined. */
  readonly streak: { readonly passed: boolean; readonly count: number }
  /** RFC 3339 time of the last change of `up`. */
  readonly since: string
  /** Why the check failed when the backend went down. */
  readonly message?: string
}

/** A result. A failure has a message for people, without text that the backend chose. */
export type CheckOutcome = { readonly passed: true } | { readonly passed: false; readonly message: string }

/**
 * The targets of a slice: the first address of each endpoint (discovery.k8s.io/v1: clients use only the first). Empty for
 * slices without a check and for imported ones.
 */
export function planTargets(slice: EndpointSlice): readonly CheckTarget[] {
  const check = checkOf(slice)
  const port = check === undefined ? undefined : checkPort(check, slice)
  if (check === undefined || port === undefined) return []
  const { name, namespace = '', annotations } = slice.metadata
  const addresses = new Set((slice.endpoints ?? []).flatMap((endpoint) => endpoint.addresses.slice(0, 1)))
  return [...addresses].map((address) => {
    const key = `${namespace}/${name} ${address} ${port} ${annotations?.[ANNOTATION_CHECK] ?? ''}`
    return { key, address, port, check }
  })
}

/**
 * What is known of a backend before the first result of this process: the state that an earlier one wrote. It stays
 * until enough new results contradict it.
 */
export function knownState({ status }: EndpointSlice, address: string): BackendState | undefined {
  const found = status?.backends.find((one) => one.address === address)
  if (found === undefined) return undefined
  const { up, since, message } = found
  return { up, streak: { passed: up, count: 0 }, since, ...(message === undefined ? {} : { message }) }
}

/** The state after one more result. It is the same object if nothing has changed. */
export function stateAfter(
  state: BackendState | undefined,
  outcome: CheckOutcome,
  { fall, rise }: Pick<BackendCheck, 'fall' | 'rise'>,
  now: string,
): BackendState {
  const { passed } = outcome
  if (state?.up === passed && state.streak.count === 0) return state
  const before = state?.streak.passed === passed ? state.streak.count : 0
  const count = before + 1
  if (state?.up === passed) return { ...state, streak: { passed, count: 0 } }
  if (count < (passed ? rise : fall)) {
    return { ...(state ?? { up: undefined, since: now }), streak: { passed, count } }
  }
  return { up: passed, streak: { passed, count: 0 }, since: now, ...(passed ? {} : { message: outcome.message }) }
}

/** Whether the last result is the first failure of a backend that is not down: the next check then comes early. */
export function isFirstFailure(state: BackendState | undefined): boolean {
  return state !== undefined && state.up !== false && !state.streak.passed && state.streak.count === 1
}

/** The longest time from the first failure to the next check. */
const MAX_RECHECK_MS = 200

/**
 * How soon the first failure of a check is confirmed. With `fall` 2, a backend that refuses is down one interval and
 * this time after it died at the latest. One that is silent also takes two timeouts: by default 2 + 1 + 0.2 + 1 s.
 */
export function recheckMs({ intervalMs }: Pick<BackendCheck, 'intervalMs'>): number {
  return Math.min(MAX_RECHECK_MS, intervalMs / 10)
}

/**
 * The status of a slice from the states of its targets. Undefined if no backend has a state yet: then nothing is written.
 */
export function planHealth(
  slice: EndpointSlice,
  stateOf: (target: CheckTarget) => BackendState | undefined,
): BackendHealth | undefined {
  const check = slice.metadata.annotations?.[ANNOTATION_CHECK]
  const backends = planTargets(slice).flatMap((target) => {
    const { up, since, message } = stateOf(target) ?? { up: undefined, since: '' }
    if (up === undefined) return []
    return [{ address: target.address, up, since, ...(message === undefined ? {} : { message }) }]
  })
  return check === undefined || backends.length === 0 ? undefined : { check, backends }
}
