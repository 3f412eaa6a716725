/** Which clusterset IPs a ServiceImport carries (KEP-1645 "Exporting Services", "ClusterSetIP"). Pure. */
import type { ConditionFinding } from '../model/conditions.ts'
import { type Address, type Prefix, classifyAddress, containsAddress, formatPrefix, parseAddress } from '../model/ip.ts'
import type { ServiceImportSpec } from '../model/objects.ts'
import { CARRIED_FAMILIES } from '../model/spec-constants.ts'
import type { Dropped, ServiceFacts } from './clusterset-view.ts'

export interface AddressInput {
  readonly key: string
  readonly facts: Pick<ServiceFacts, 'ips'>
  readonly previousIps: readonly string[]
  readonly clustersetIpRange: Prefix | undefined
}

export interface AddressPlan {
  /** In the order of ipFamilies; undefined for none. */
  readonly ips: readonly string[] | undefined
  readonly ipFamilies: readonly ('IPv4' | 'IPv6')[]
  readonly ready: ConditionFinding
}

/** A headless service needs no address; a ClusterSetIP one is ready once it has one of a family it is offered in. */
export function planAddresses(
  input: AddressInput,
  spec: Pick<ServiceImportSpec, 'type' | 'ipFamilies'>,
  dropped: Dropped[],
): AddressPlan {
  const families = spec.ipFamilies ?? ['IPv4']
  if (!families.some((family) => CARRIED_FAMILIES.includes(family))) {
    const message = `the service is offered by ${families.join(' and ')} only, the clusterset carries ${CARRIED_FAMILIES.join(' and ')}`
    return { ips: undefined, ipFamilies: families, ready: finding('False', 'IPFamilyNotSupported', message) }
  }
  if (spec.type === 'Headless') {
    return { ips: undefined, ipFamilies: families, ready: finding('True', 'Ready', 'consumed by DNS') }
  }
  const usable = (input.facts.ips?.body.ips ?? input.previousIps).filter((text) => {
    const problem = ipProblem(text, input.clustersetIpRange)
    if (problem !== undefined) dropped.push({ what: `/ClusterSetIP/${input.key}`, reason: problem })
    return problem === undefined
  })
  const ips = families.flatMap((family) => usable.find((text) => familyOf(text) === family) ?? [])
  if (ips.length === 0) {
    return { ips: undefined, ipFamilies: families, ready: finding('False', 'Pending', 'has no clusterset IP yet') }
  }
  return { ips, ipFamilies: ips.map(familyOf), ready: finding('True', 'Ready', 'has its clusterset IP') }
}

function ipProblem(text: string, range: Prefix | undefined): string | undefined {
  let address: Address
  try {
    address = parseAddress(text)
  } catch {
    return `${JSON.stringify(text)} is not an IP address`
  }
  // Class E is where clusterset IPs come from; classifyAddress lets it pass.
  if (classifyAddress(address) !== 'usable') return `${text} is no usable address`
  if (range !== undefined && range.family === address.family && !containsAddress(range, address)) {
    return `${text} is outside the clusterset IP range ${formatPrefix(range)}`
  }
  return undefined
}

function familyOf(text: string): 'IPv4' | 'IPv6' {
  return text.includes(':') ? 'IPv6' : 'IPv4'
}

function finding(status: 'True' | 'False', reason: string, message: string): ConditionFinding {
  return { type: 'Ready', status, reason, message }
}
