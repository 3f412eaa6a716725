/**
 * Which addresses outside the cluster NetworkPolicies let through. Policies add to each other: what the rules of one let
 * through, none takes away. Where nobody can say, it counts as let through. Pure.
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
  /** Whom it lets through. */
  readonly lets: Addresses
  /** Where; none: at every port. */
  readonly ports: readonly PolicyPort[]
}

/** Whom a rule names; without any it is everybody. */
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

/** A port of a pod, by its number or by its name. */
export interface PodPort {
  readonly protocol: string
  readonly port: number | string
}

/** `any`, or those of these prefixes. */
export type Addresses = 'any' | readonly Prefix[]

/** With more blocks and exceptions than this, or more that is left of them, nobody says what is let through. */
const MOST_PREFIXES = 200

/** What the API server takes it for where it does not say. */
export function isAbout({ spec }: NetworkPolicy, direction: Direction): boolean {
  const types = spec?.policyTypes ?? []
  if (types.length > 0) return types.includes(direction)
  return direction === 'Ingress' || (spec?.egress ?? []).length > 0
}

/** None where it is not about the direction. */
export function rulesOf(policy: NetworkPolicy, direction: Direction): readonly PolicyRule[] {
  if (!isAbout(policy, direction)) return []
  const { ingress, egress } = policy.spec ?? {}
  return direction === 'Ingress'
    ? (ingress ?? []).map(({ from, ports }) => ({ lets: addressesOf(from ?? []), ports: ports ?? [] }))
    : (egress ?? []).map(({ to, ports }) => ({ lets: addressesOf(to ?? []), ports: ports ?? [] }))
}

/** A name and a number may be one port: that is for the pod to say. */
export function opens({ ports }: PolicyRule, wanted: PodPort): boolean {
  return ports.length === 0 || ports.some((one) => mayBe(one, wanted))
}

function mayBe({ protocol, port, endPort }: PolicyPort, wanted: PodPort): boolean {
  if ((protocol ?? 'TCP') !== wanted.protocol) return false
  if (port === undefined || port === null || typeof port !== typeof wanted.port) return true
  if (typeof port === 'string' || typeof wanted.port === 'string') return port === wanted.port
  return port <= wanted.port && wanted.port <= (endPort ?? port)
}

/** What some of the rules let through. */
export function letThrough(rules: readonly PolicyRule[]): Addresses {
  const all: Prefix[] = []
  for (const { lets } of rules) {
    if (lets === 'any' || all.length + lets.length > MOST_PREFIXES) return 'any'
    all.push(...lets)
  }
  return all
}

/** Whether some address of the range is let through. */
export function meets(addresses: Addresses, range: Prefix): boolean {
  return addresses === 'any' || addresses.some((one) => overlaps(one, range))
}

/** A peer that is named by labels is a pod of this cluster, and none of another. */
export function addressesOf(peers: readonly PolicyPeer[]): Addresses {
  if (peers.length === 0) return 'any'
  const blocks = peers.flatMap(({ ipBlock }) => ipBlock ?? [])
  const count = blocks.reduce((sum, { except }) => sum + 1 + (except ?? []).length, 0)
  if (count > MOST_PREFIXES) return 'any'
  const prefixes = blocks.map(leftOf)
  return prefixes.includes(undefined) ? 'any' : prefixes.flatMap((one) => one ?? [])
}

/** Undefined where its CIDR cannot be read. An exception that cannot be read is none. */
function leftOf({ cidr, except }: IpBlock): readonly Prefix[] | undefined {
  const whole = readPrefix(cidr)
  if (whole === undefined) return undefined
  const without = (except ?? []).flatMap((text) => readPrefix(text) ?? [])
  // The longest prefix decides below: an exception from outside would not count.
  if (without.some((one) => containsPrefix(one, whole))) return []
  return meantPrefixes([{ prefix: whole, meant: true }, ...without.map((prefix) => ({ prefix, meant: false }))])
}

/** The API server takes `10.1.2.3/16` as well. */
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

// Whether a label selector is about a pod, also where only some of its labels are known. Pure.

/** maybe: that depends on labels that are not known. */
export type Selected = 'yes' | 'maybe' | 'no'

interface KnownLabels {
  readonly labels: Readonly<Record<string, string>>
  /** The pod has no others. */
  readonly isWhole: boolean
}

/** An empty selector is about every pod. */
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

/** It asks for nothing. */
export function selectsAll(selector: LabelSelector | null | undefined): boolean {
  return Object.keys(selector?.matchLabels ?? {}).length === 0 && (selector?.matchExpressions ?? []).length === 0
}

interface Requirement {
  readonly key: string
  readonly operator: string
  readonly values?: readonly string[] | null | undefined
}

/** A pod without the label is in no set of values, and so meets NotIn. */
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

// By which addresses pods of other clusters call pods of this one, and are called. Pure.

export interface OtherRange {
  readonly cluster: string
  readonly prefix: Prefix
}

/** Their pod CIDRs, or the global ones where they have them; IPv6 where pods here have it. What is no CIDR is left out. */
export function otherRanges({ objects, self }: World): readonly OtherRange[] {
  const clusters = (objects.Cluster ?? []).map(({ object }) => object)
  const own = clusters.find(({ spec }) => spec.id === self)
  const families = orNone<Family>(() => plannedFamilies(own))
  return clusters
    .filter((cluster) => cluster !== own)
    .flatMap(({ spec }) => orNone(() => routedPrefixes(spec)).map((prefix) => ({ cluster: spec.id, prefix })))
    .filter(({ prefix }) => families.includes(prefix.family))
}

/** `10.52.0.0/16 (paris), 10.62.0.0/16 (tokyo)` */
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
