/**
 * Finds the addresses outside the cluster that NetworkPolicies allow. Policies are additive: no policy denies what
 * another allows. An unknown result counts as allowed. Pure.
 */
import {
  type Family,
  type Prefix,
  addressBits,
  containsPrefix,
  formatPrefix,
  meantPrefixes,
  overlaps,
  parseAddress,
  plannedFamilies,
  prefixOf,
  routedPrefixes,
} from '../../model/addresses/addresses.ts'
import { type LabelSelector, type NetworkPolicy, type World, named } from '../facts/facts.ts'

export type Direction = 'Ingress' | 'Egress'

/** A rule of either direction. */
export interface PolicyRule {
  /** The addresses that the rule allows. */
  readonly lets: Addresses
  /** The ports that the rule allows. Empty for all ports. */
  readonly ports: readonly PolicyPort[]
}

/** A peer of a rule. A rule without peers allows all. */
export interface PolicyPeer {
  readonly ipBlock?: IpBlock | null | undefined
}

export interface IpBlock {
  readonly cidr: string
  readonly except?: readonly string[] | null | undefined
}

interface PolicyPort {
  readonly protocol?: string | null | undefined
  readonly port?: number | string | null | undefined
  readonly endPort?: number | null | undefined
}

/** A port of a pod, by number or by name. */
export interface PodPort {
  readonly protocol: string
  readonly port: number | string
}

/** `any`, or the addresses in these prefixes. */
export type Addresses = 'any' | readonly Prefix[]

/** With more blocks and exceptions than this, or more resulting prefixes, all addresses count as allowed. */
const MOST_PREFIXES = 200

/** Whether the policy applies to the direction, with the API server's default if it has no policyTypes. */
export function isAbout({ spec }: NetworkPolicy, direction: Direction): boolean {
  const types = spec?.policyTypes ?? []
  if (types.length > 0) return types.includes(direction)
  return direction === 'Ingress' || (spec?.egress ?? []).length > 0
}

/** Empty if the policy does not apply to the direction. */
export function rulesOf(policy: NetworkPolicy, direction: Direction): readonly PolicyRule[] {
  if (!isAbout(policy, direction)) return []
  const { ingress, egress } = policy.spec ?? {}
  return direction === 'Ingress'
    ? (ingress ?? []).map(({ from, ports }) => ({ lets: addressesOf(from ?? []), ports: ports ?? [] }))
    : (egress ?? []).map(({ to, ports }) => ({ lets: addressesOf(to ?? []), ports: ports ?? [] }))
}

/** Whether the rule may allow the port. A name and a number may mean the same port, which only the pod tells. */
export function opens({ ports }: PolicyRule, wanted: PodPort): boolean {
  return ports.length === 0 || ports.some((one) => mayBe(one, wanted))
}

function mayBe({ protocol, port, endPort }: PolicyPort, wanted: PodPort): boolean {
  if ((protocol ?? 'TCP') !== wanted.protocol) return false
  if (port === undefined || port === null || typeof port !== typeof wanted.port) return true
  if (typeof port === 'string' || typeof wanted.port === 'string') return port === wanted.port
  return port <= wanted.port && wanted.port <= (endPort ?? port)
}

/** The addresses that any of the rules allows. */
export function letThrough(rules: readonly PolicyRule[]): Addresses {
  const all: Prefix[] = []
  for (const { lets } of rules) {
    if (lets === 'any' || all.length + lets.length > MOST_PREFIXES) return 'any'
    all.push(...lets)
  }
  return all
}

/** Whether any address of the range is allowed. */
export function meets(addresses: Addresses, range: Prefix): boolean {
  return addresses === 'any' || addresses.some((one) => overlaps(one, range))
}

/** A peer with label selectors matches pods of this cluster only. */
export function addressesOf(peers: readonly PolicyPeer[]): Addresses {
  if (peers.length === 0) return 'any'
  const blocks = peers.flatMap(({ ipBlock }) => ipBlock ?? [])
  const count = blocks.reduce((sum, { except }) => sum + 1 + (except ?? []).length, 0)
  if (count > MOST_PREFIXES) return 'any'
  const prefixes = blocks.map(leftOf)
  return prefixes.includes(undefined) ? 'any' : prefixes.flatMap((one) => one ?? [])
}

/** The prefixes that remain of the block. Undefined if its CIDR is malformed. A malformed exception is ignored. */
function leftOf({ cidr, except }: IpBlock): readonly Prefix[] | undefined {
  const whole = readPrefix(cidr)
  if (whole === undefined) return undefined
  const without = (except ?? []).flatMap((text) => readPrefix(text) ?? [])
  // meantPrefixes() prefers the longest prefix, so an exception that contains the whole block would be ignored.
  if (without.some((one) => containsPrefix(one, whole))) return []
  return meantPrefixes([{ prefix: whole, meant: true }, ...without.map((prefix) => ({ prefix, meant: false }))])
}

/** Also accepts `10.1.2.3/16`, as the API server does. */
function readPrefix(text: string): Prefix | undefined {
  const [address = '', length = '', ...more] = text.split('/')
  if (more.length > 0 || !/^\d{1,3}$/.test(length)) return undefined
  try {
    const read = parseAddress(address)
    return Number(length) > addressBits(read.family) ? undefined : prefixOf(read, Number(length))
  } catch {
    return undefined
  }
}

// Decides whether a label selector matches a pod, even if only some of its labels are known. Pure.

/** maybe: the result depends on unknown labels. */
export type Selected = 'yes' | 'maybe' | 'no'

interface KnownLabels {
  readonly labels: Readonly<Record<string, string>>
  /** Whether the pod has no other labels. */
  readonly isWhole: boolean
}

/** An empty selector matches every pod. */
export function selects(selector: LabelSelector | null | undefined, known: KnownLabels): Selected {
  const { matchLabels, matchExpressions } = selector ?? {}
  const answers = [
    ...Object.entries(matchLabels ?? {}).map(([key, value]) =>
      meetsRequirement({ key, operator: 'In', values: [value] }, known),
    ),
    ...(matchExpressions ?? []).map((one) => meetsRequirement(one, known)),
  ]
  if (answers.includes('no')) return 'no'
  return answers.includes('maybe') ? 'maybe' : 'yes'
}

/** Whether the selector is empty. */
export function selectsAll(selector: LabelSelector | null | undefined): boolean {
  return Object.keys(selector?.matchLabels ?? {}).length === 0 && (selector?.matchExpressions ?? []).length === 0
}

interface Requirement {
  readonly key: string
  readonly operator: string
  readonly values?: readonly string[] | null | undefined
}

/** A pod without the label meets NotIn. */
function meetsRequirement({ key, operator, values }: Requirement, { labels, isWhole }: KnownLabels): Selected {
  const value = Object.hasOwn(labels, key) ? labels[key] : undefined
  if (value === undefined && !isWhole) return 'maybe'
  const isIn = value !== undefined && (values ?? []).includes(value)
  switch (operator) {
    case 'In':
      return isIn ? 'yes' : 'no'
    case 'NotIn':
      return isIn ? 'no' : 'yes'
    case 'Exists':
      return value === undefined ? 'no' : 'yes'
    case 'DoesNotExist':
      return value === undefined ? 'yes' : 'no'
    default:
      return 'maybe'
  }
}

// The addresses by which pods of other clusters and of this one reach each other. Pure.

export interface OtherRange {
  readonly cluster: string
  readonly prefix: Prefix
}

/**
 * The global CIDRs of the other clusters if they have them, otherwise their pod CIDRs. IPv6 is included if pods here
 * have it. Malformed CIDRs are left out.
 */
export function otherRanges({ objects, self }: World): readonly OtherRange[] {
  const clusters = (objects.Cluster ?? []).map(({ object }) => object)
  const own = clusters.find(({ spec }) => spec.id === self)
  const families = orNone<Family>(() => plannedFamilies(own))
  return clusters
    .filter((cluster) => cluster !== own)
    .flatMap(({ spec }) => orNone(() => routedPrefixes(spec)).map((prefix) => ({ cluster: spec.id, prefix })))
    .filter(({ prefix }) => families.includes(prefix.family))
}

/** For example, `10.52.0.0/16 (paris), 10.62.0.0/16 (tokyo)`. */
export function rangesText(ranges: readonly OtherRange[]): string {
  return named(ranges.map(({ cluster, prefix }) => `${formatPrefix(prefix)} (${cluster})`))
}

function orNone<T>(read: () => readonly T[]): readonly T[] {
  try {
    return read()
  } catch {
    return []
  }
}
