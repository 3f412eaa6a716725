/** Judges what a cluster states about itself: its address ranges must be real, its own, and clear of ours. Pure. */
import { isDnsSubdomain } from '../model/ids.ts'
import { type Prefix, overlaps, parsePrefix } from '../model/ip.ts'
import { LANE_ADDRESS_RANGE } from '../model/kernel-ids.ts'
import type { ClusterFacts } from '../protocol/broker-api.ts'
import { type Refusal, checkCount, checkText, first, quote, refusal } from './admission-checks.ts'

export interface FactRanges {
  readonly globalRange: string
  readonly clustersetIpRange: string
}

const MAX_CIDRS = 16
const MIN_POD_LENGTH = 8
const MAX_POD_LENGTH = 28
const MAX_LABELS = 64

const SPECIAL: readonly (readonly [string, string])[] = [
  ['0.0.0.0/8', 'unspecified addresses'],
  ['127.0.0.0/8', 'loopback addresses'],
  ['169.254.0.0/16', 'link-local addresses'],
  ['224.0.0.0/4', 'multicast addresses'],
  ['255.255.255.255/32', 'the broadcast address'],
]

/** Undefined when the cluster may join with these facts. */
export function admitFacts(facts: ClusterFacts, ranges: FactRanges): Refusal | undefined {
  return first(
    () => checkCount('podCIDRs', facts.podCIDRs.length, 1, MAX_CIDRS),
    () => checkCount('serviceCIDRs', facts.serviceCIDRs.length, 0, MAX_CIDRS),
    ...facts.podCIDRs.map((text, i) => () => admitPodCidr(`podCIDRs[${i}]`, text)),
    ...facts.serviceCIDRs.map((text, i) => () => admitServiceCidr(`serviceCIDRs[${i}]`, text)),
    ...facts.podCIDRs.map((text, i) => () => admitClear(`podCIDRs[${i}]`, text, reserved(ranges))),
    () => admitDisjoint(facts),
    () => admitLabels(facts.labels),
    () => checkText('version', facts.version, 0, 64),
  )
}

function admitPodCidr(field: string, text: string): Refusal | undefined {
  const prefix = parse(field, text)
  if (!isPrefix(prefix)) return prefix
  if (prefix.family !== 4)
    return refusal(field, `${quote(text)}: expected IPv4, this version does not connect IPv6 pods`)
  if (prefix.length < MIN_POD_LENGTH)
    return refusal(field, `${quote(text)} is too large: expected /${MIN_POD_LENGTH} to /${MAX_POD_LENGTH}`)
  if (prefix.length > MAX_POD_LENGTH)
    return refusal(field, `${quote(text)} is too small: expected /${MIN_POD_LENGTH} to /${MAX_POD_LENGTH}`)
  return undefined
}

/** Service addresses never leave their cluster; the ranges only tell which addresses a cluster keeps for itself. */
function admitServiceCidr(field: string, text: string): Refusal | undefined {
  const prefix = parse(field, text)
  if (!isPrefix(prefix)) return prefix
  if (prefix.length === 0) return refusal(field, `${quote(text)} is too large: expected a service range`)
  return undefined
}

function admitClear(field: string, text: string, taken: readonly (readonly [string, string])[]): Refusal | undefined {
  const prefix = parsePrefix(text)
  const clash = taken.find(([range]) => overlaps(parsePrefix(range), prefix))
  return clash === undefined
    ? undefined
    : refusal(field, `${quote(text)} overlaps ${clash[0]} (${clash[1]}): expected pod addresses of the cluster's own`)
}

function reserved(ranges: FactRanges): readonly (readonly [string, string])[] {
  return [
    ...SPECIAL,
    [ranges.globalRange, "the clusterset's global range"],
    [ranges.clustersetIpRange, 'the clusterset IP range'],
    [LANE_ADDRESS_RANGE, 'the addresses of lane devices'],
  ]
}

/** Inside one cluster an address must mean one thing. */
function admitDisjoint(facts: ClusterFacts): Refusal | undefined {
  const named = [
    ...facts.podCIDRs.map((text, i) => ({ field: `podCIDRs[${i}]`, text, prefix: parsePrefix(text) })),
    ...facts.serviceCIDRs.map((text, i) => ({ field: `serviceCIDRs[${i}]`, text, prefix: parsePrefix(text) })),
  ]
  for (const [i, one] of named.entries()) {
    const other = named.slice(0, i).find((before) => overlaps(before.prefix, one.prefix))
    if (other !== undefined)
      return refusal(
        one.field,
        `${quote(one.text)} overlaps ${other.field} ${quote(other.text)}: expected ranges apart from each other`,
      )
  }
  return undefined
}

function admitLabels(labels: Readonly<Record<string, string>>): Refusal | undefined {
  const entries = Object.entries(labels)
  return first(
    () => checkCount('labels', entries.length, 0, MAX_LABELS),
    ...entries.map(([key, value]) => () => {
      if (!/^([^/]{1,253}\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/.test(key) || !isPrefixOfKey(key)) {
        return refusal('labels', `key ${quote(key)}: expected a Kubernetes label key`)
      }
      return /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/.test(value)
        ? undefined
        : refusal(`labels[${key}]`, `${quote(value)}: expected a Kubernetes label value`)
    }),
  )
}

function isPrefixOfKey(key: string): boolean {
  const slash = key.indexOf('/')
  return slash < 0 || isDnsSubdomain(key.slice(0, slash))
}

function parse(field: string, text: string): Prefix | Refusal {
  try {
    return parsePrefix(text, field)
  } catch (error) {
    // The message begins with the field, which the refusal names by itself.
    return refusal(field, (error as Error).message.slice(field.length + 1))
  }
}

function isPrefix(value: Prefix | Refusal): value is Prefix {
  return 'length' in value
}
