/**
 * The addresses that pods really have. Configuration may name other networks: an IPAM of its own, a pool that was
 * switched off and is still in use, a cloud's secondary range. Pure.
 */
import {
  type Address,
  InvalidAddressError,
  classifyAddress,
  containsAddress,
  formatAddress,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { isWithoutRouteAgent } from './platform.ts'
import { type World, at, listAt, nameOf, textAt } from './snapshot.ts'

/** One address of a pod that Sealane would serve. */
export interface ObservedPod {
  /** `namespace/name` */
  readonly pod: string
  readonly address: Address
}

/**
 * One entry for each address of each pod, sorted by pod. Left out are pods on the host network, pods that have ended,
 * pods on nodes without a routeagent, and addresses of nodes.
 */
export function podAddresses(world: World): readonly ObservedPod[] {
  const nodes = world.list('Node', '')
  const without = new Set(nodes.filter(isWithoutRouteAgent).map(nameOf))
  const ofNodes = new Set(nodeAddresses(world).map(formatAddress))
  const found = world.list('Pod', '').flatMap((pod): ObservedPod[] => {
    if (at(pod, 'spec', 'hostNetwork') === true || without.has(textAt(pod, 'spec', 'nodeName') ?? '')) return []
    if (ENDED.has(textAt(pod, 'status', 'phase') ?? '')) return []
    const many = listAt(pod, 'status', 'podIPs').map((entry) => textAt(entry, 'ip'))
    const texts = many.length > 0 ? many : [textAt(pod, 'status', 'podIP')]
    const name = `${textAt(pod, 'metadata', 'namespace') ?? ''}/${nameOf(pod)}`
    return texts
      .map(lenientAddress)
      .filter((one) => one !== undefined)
      .filter((one) => classifyAddress(one) === 'usable' && !ofNodes.has(formatAddress(one)))
      .map((address) => ({ pod: name, address }))
  })
  return [...new Map(found.map((one) => [`${one.pod} ${formatAddress(one.address)}`, one])).values()]
}

const ENDED = new Set(['Succeeded', 'Failed'])

/** The addresses of all nodes. */
export function nodeAddresses(world: World, types: readonly string[] = ['InternalIP', 'ExternalIP']): Address[] {
  return world
    .list('Node', '')
    .flatMap((node) => listAt(node, 'status', 'addresses'))
    .filter((entry) => types.includes(textAt(entry, 'type') ?? ''))
    .map((entry) => lenientAddress(textAt(entry, 'address')))
    .filter((one) => one !== undefined)
}

function lenientAddress(text: string | undefined): Address | undefined {
  if (text === undefined || text.length > 45) return undefined
  try {
    return parseAddress(text)
  } catch (error) {
    if (error instanceof InvalidAddressError) return undefined
    throw error
  }
}

/** The pods whose address is in none of these networks. */
export function podsOutside(pods: readonly ObservedPod[], cidrs: readonly string[]): readonly ObservedPod[] {
  const prefixes = cidrs.map((text) => parsePrefix(text))
  return pods.filter(({ address }) => !prefixes.some((prefix) => containsAddress(prefix, address)))
}

/** A sentence about these pods, which are outside the networks. Whole names, as far as they are printable. */
export function outsideText(pods: readonly ObservedPod[], networks: string): string {
  const [first] = pods
  if (first === undefined) return ''
  const others = new Set(pods.map(({ pod }) => pod)).size - 1
  const more = others === 0 ? '' : `, as have ${others} more ${others === 1 ? 'pod' : 'pods'}`
  return `pod ${first.pod} has the address ${formatAddress(first.address)}${more}, outside ${networks}`
}
