/** Single checks of admission. Each returns undefined, or a refusal in one sentence. Pure. */
import {
  type Address,
  type AddressClass,
  classifyAddress,
  containsAddress,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { type FormOf, countProblem, formProblem, quote } from '../../model/grammar/grammar.ts'
import { CLUSTERSET_IPV6_PREFIX, LANE_ADDRESS_RANGE } from '../../model/model.ts'
import type { RefusalReason } from '../../model/reasons/reasons.ts'
import { RefusedError } from '../../protocol/protocol.ts'

export interface Refusal {
  readonly field: string
  readonly reason: RefusalReason
  /** Continues after the field: `"x": expected …`. */
  readonly message: string
  /** There is no room for the new version of the record. The previous version is still stored. */
  readonly kept?: true
}

export function refusal(field: string, message: string, reason: RefusalReason = 'InvalidValue'): Refusal {
  return { field, reason, message }
}

/** The first refusal. Later checks do not run, so they may rely on the earlier ones. */
export function first(...checks: readonly (() => Refusal | undefined)[]): Refusal | undefined {
  for (const check of checks) {
    const refused = check()
    if (refused !== undefined) return refused
  }
  return undefined
}

/** Checks the form of a value, whose field is `path`, except values of the forms in `apart`. */
export function checkForm<T>(form: FormOf<T>, value: T, path = '', apart?: ReadonlySet<unknown>): Refusal | undefined {
  const wrong = formProblem(form, value, apart)
  return wrong && refusal(`${path}${wrong.field}`, wrong.problem)
}

export function checkText(field: string, problem: string | undefined): Refusal | undefined {
  return problem === undefined ? undefined : refusal(field, problem)
}

export function checkCount(field: string, count: number, least: number, most: number): Refusal | undefined {
  return checkText(field, countProblem(count, { least, most }))
}

const CLASS_WORDS: Record<Exclude<AddressClass, 'usable'>, string> = {
  unspecified: 'an unspecified',
  loopback: 'a loopback',
  linkLocal: 'a link-local',
  multicast: 'a multicast',
  broadcast: 'the broadcast',
}

/** Undefined if the address can be used between clusters. */
export function describeUnusable(address: Address): string | undefined {
  const is = classifyAddress(address)
  return is === 'usable' ? undefined : `${CLASS_WORDS[is]} address`
}

/** Ranges from which the broker allocates. */
export interface ClustersetRanges {
  readonly globalRange: string
  readonly clustersetIpRange: string
}

/** Ranges that no cluster may use as its own, with their purpose. */
export function reservedRanges(ranges: ClustersetRanges): readonly (readonly [range: string, what: string])[] {
  return [
    [ranges.globalRange, "the clusterset's global range"],
    [ranges.clustersetIpRange, 'the clusterset IP range'],
    [CLUSTERSET_IPV6_PREFIX, 'the range of IPv6 clusterset IPs'],
    [LANE_ADDRESS_RANGE, 'the addresses of lane devices'],
  ]
}

/** Checks an address outside the tunnels: an address inside them would route a gateway's own packets back to itself. */
export function checkOuterAddress(field: string, text: string, ranges: ClustersetRanges): Refusal | undefined {
  const address = parseOrUndefined(text)
  if (address === undefined) return refusal(field, `${quote(text)}: expected an IPv4 or IPv6 address`)
  const inside = reservedRanges(ranges).find(([range]) => containsAddress(parsePrefix(range), address))
  const unusable = inside === undefined ? describeUnusable(address) : `inside ${inside[0]} (${inside[1]})`
  return unusable === undefined
    ? undefined
    : refusal(field, `${quote(text)} is ${unusable}: expected one that other clusters can reach`, 'AddressNotReachable')
}

export function parseOrUndefined(text: string): Address | undefined {
  try {
    return parseAddress(text)
  } catch {
    return undefined
  }
}

// Refusals about a member as errors.

/** The refusal of facts that a cluster states about itself. */
export function refusedFacts({ reason, field, message }: Refusal): RefusedError {
  return new RefusedError(reason, field, `${field}: ${message}`)
}

/** The refusal of a certificate that a cluster shows, or of its membership. */
export function denied(reason: RefusalReason, message: string): RefusedError {
  return new RefusedError(reason, 'certificate', message)
}
