/**
 * Whether the address that a member called from when it joined is its own. Something on the way may have put its own
 * there: a kube-proxy, a load balancer, the bridge of this pod. Whether others are seen under the same address is not
 * asked here: they may come later, so the gateways compare. Pure.
 */
import {
  type Prefix,
  classifyAddress,
  containsAddress,
  formatAddress,
  formatPrefix,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/ip.ts'
import { LANE_ADDRESS_RANGE } from '../../model/kernel-ids.ts'

const LANES = parsePrefix(LANE_ADDRESS_RANGE)

export interface ObservedView {
  /** Addresses reach the broker as they were sent; false behind a Service that puts the node's own in their place. */
  readonly sourcesKept: boolean
  /** Of this machine or pod, and of the next hops of its routes. */
  readonly near: readonly string[]
  /** Of the members' pods and Services, and those that the broker gives out. */
  readonly ranges: readonly Prefix[]
}

/** Why the address does not count, in words; undefined when it does. */
export function observedDoubt(text: string, { sourcesKept, near, ranges }: ObservedView): string | undefined {
  const address = readable(() => parseAddress(text))
  if (address === undefined || formatAddress(address) !== text) return 'it is no address'
  if (address.family !== 4) return 'gateways are called over IPv4'
  const kind = classifyAddress(address)
  if (kind !== 'usable') return `it is ${kind}`
  if (!sourcesKept) return 'the Service in front of this broker puts addresses of nodes in place of the callers’ own'
  if (near.includes(text)) return 'it is of this machine, or of the next hop that hands on to it'
  const holder = [...ranges, LANES].find((prefix) => containsAddress(prefix, address))
  return holder === undefined ? undefined : `it is inside ${formatPrefix(holder)}, a range of this clusterset`
}

function readable<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
