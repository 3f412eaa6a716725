/** Families and clusterset IPs of a ServiceImport (KEP-1645 "Exporting Services", "ClusterSetIP"). Pure. */
import { clustersetIpv4, clustersetIpv6 } from '../../model/addresses/clusterset-ip.ts'
import type { ConditionFinding } from '../../model/conditions.ts'
import type { IpFamily } from '../../model/services/export-precedence.ts'
import {
  type Address,
  type Prefix,
  classifyAddress,
  containsAddress,
  formatAddress,
  formatPrefix,
  parseAddress,
} from '../../model/addresses/ip.ts'
import type { ServiceImportSpec } from '../../model/objects.ts'
import { CARRIED_FAMILIES } from '../../model/spec-constants.ts'
import type { Dropped, ServiceFacts } from './clusterset-view.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

export interface AddressInput {
  readonly key: string
  readonly facts: Pick<ServiceFacts, 'ips'>
  readonly previousIps: readonly string[]
  readonly clustersetIpRange: Prefix | undefined
  /** Of the addresses that this cluster's own pods have. */
  readonly ownFamilies: readonly IpFamily[]
}

export interface AddressPlan {
  /** In the order of ipFamilies; undefined for none. */
  readonly ips: readonly string[] | undefined
  readonly ipFamilies: readonly IpFamily[]
  /** Those that pods of this cluster can use: of no other family are there endpoints here. */
  readonly usable: readonly IpFamily[]
  readonly ready: ConditionFinding
}

/**
 * Of the merged service's families those that this cluster's pods have. A headless service needs no address; a
 * ClusterSetIP one is ready once it has one: the broker gives that of IPv4, and that of IPv6 follows from it.
 */
export function planAddresses(
  input: AddressInput,
  spec: Pick<ServiceImportSpec, 'type' | 'ipFamilies'>,
  dropped: Dropped[],
): AddressPlan {
  const merged = spec.ipFamilies ?? ['IPv4']
  const own = CARRIED_FAMILIES.filter((family) => input.ownFamilies.includes(family))
  const usable = merged.filter((family) => own.includes(family))
  if (usable.length === 0) {
    const message = `the service is offered by ${merged.join(' and ')} only, this cluster's pods have ${own.join(' and ')}`
    return { ips: undefined, ipFamilies: merged, usable, ready: finding('False', 'IPFamilyNotSupported', message) }
  }
  const families = { ipFamilies: usable, usable }
  if (spec.type === 'Headless')
    return { ips: undefined, ...families, ready: finding('True', 'Ready', 'consumed by DNS') }
  const given = input.facts.ips?.body.ips ?? input.previousIps.map(givenFor)
  const address = firstUsable(given, input, dropped)
  if (address === undefined) {
    return { ips: undefined, ...families, ready: finding('False', 'Pending', 'has no clusterset IP yet') }
  }
  const ips = usable.map((family) => formatAddress(family === 'IPv4' ? address : clustersetIpv6(address)))
  return { ips, ...families, ready: finding('True', 'Ready', 'has its clusterset IP') }
}

/** The IPv4 address that an address of a ServiceImport was made from. */
function givenFor(text: string): string {
  const address = tryParse(text)
  const v4 = address === undefined ? undefined : clustersetIpv4(address)
  return v4 === undefined ? text : formatAddress(v4)
}

function firstUsable(
  texts: readonly string[],
  { key, clustersetIpRange }: AddressInput,
  dropped: Dropped[],
): Address | undefined {
  const addresses = texts.flatMap((text) => {
    const problem = ipProblem(text, clustersetIpRange)
    if (problem !== undefined) dropped.push({ what: `/ClusterSetIP/${key}`, reason: 'InvalidValue', message: problem })
    return problem === undefined ? [parseAddress(text)] : []
  })
  return addresses[0]
}

function ipProblem(text: string, range: Prefix | undefined): string | undefined {
  const address = tryParse(text)
  if (address === undefined) return `${JSON.stringify(text)} is not an IP address`
  if (address.family !== 4) return `${text} is no IPv4 address`
  // Class E is where clusterset IPs come from; classifyAddress lets it pass.
  if (classifyAddress(address) !== 'usable') return `${text} is no usable address`
  if (range !== undefined && !containsAddress(range, address)) {
    return `${text} is outside the clusterset IP range ${formatPrefix(range)}`
  }
  return undefined
}

function tryParse(text: string): Address | undefined {
  try {
    return parseAddress(text)
  } catch {
    return undefined
  }
}

function finding(status: 'True' | 'False', reason: ReasonCode, message: string): ConditionFinding {
  return { type: 'Ready', status, reason, message }
}
