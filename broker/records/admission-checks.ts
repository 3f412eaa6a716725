/** Single checks of admission. Each returns undefined, or a refusal in one sentence. Pure. */
import {
  type Address,
  type AddressClass,
  classifyAddress,
  containsAddress,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { CLUSTERSET_IPV6_PREFIX, LANE_ADDRESS_RANGE, isDnsLabel, isQualifiedName } from '../../model/model.ts'
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

/** Quoted, without control characters, and shortened: a member must not write its own lines into the log. */
export function quote(value: string): string {
  return JSON.stringify(value.length > 120 ? `${value.slice(0, 120)}…` : value)
}

export function checkLabel(field: string, value: string): Refusal | undefined {
  if (isDnsLabel(value)) return undefined
  if (value.length > 63) return refusal(field, `${quote(value)} has ${value.length} characters: expected at most 63`)
  return refusal(field, `${quote(value)}: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -`)
}

export function checkOneOf(field: string, value: string, allowed: readonly string[]): Refusal | undefined {
  return allowed.includes(value) ? undefined : refusal(field, `${quote(value)}: expected ${allowed.join(' or ')}`)
}

export function checkCount(field: string, count: number, min: number, max: number): Refusal | undefined {
  if (count >= min && count <= max) return undefined
  return refusal(field, `has ${count} entries: expected ${min} to ${max}`)
}

export function checkPort(field: string, value: number): Refusal | undefined {
  if (Number.isInteger(value) && value >= 1 && value <= 65_535) return undefined
  return refusal(field, `${value}: expected 1 to 65535`)
}

export function checkQualifiedName(field: string, value: string | undefined): Refusal | undefined {
  if (value === undefined || isQualifiedName(value)) return undefined
  return refusal(field, `${quote(value)}: expected a Kubernetes qualified name such as example.org/name`)
}

/** Text without control characters. */
export function checkText(field: string, value: string, min: number, max: number): Refusal | undefined {
  if (value.length < min || value.length > max) {
    return refusal(field, `has ${value.length} characters: expected ${min} to ${max}`)
  }
  return /[\u0000-\u001f\u007f]/.test(value)
    ? refusal(field, `${quote(value)}: expected no control characters`)
    : undefined
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
