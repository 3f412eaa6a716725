/**
 * Validates what a cluster states about itself: its address ranges, which must be valid, its own, and apart from
 * reserved ranges, and its status. Pure.
 */
import {
  type AddressClass,
  type Family,
  MAX_NEEDED,
  type Prefix,
  SHORTEST_NEEDED,
  SHORTEST_PREFIX,
  UNGRANTED_SPACE,
  formatPrefix,
  ipv4Among,
  isInside,
  mayState,
  overlaps,
  parsePrefix,
  specialPart,
} from '../../model/addresses/addresses.ts'
import { type MemberStatus, statusProblem } from '../../model/model.ts'
import { RECORD_FORMS, plainProblem, quote } from '../../model/grammar/grammar.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import {
  type ClustersetRanges,
  type Refusal,
  checkCount,
  checkForm,
  checkText,
  first,
  refusal,
  reservedRanges,
} from './admission.ts'

/** What a cluster states becomes its Cluster record. */
const FORMS = RECORD_FORMS.Cluster.fields.spec.fields
const MAX_POD_LENGTH: Readonly<Record<Family, number>> = { 4: 28, 6: 124 }

const CLASS_WORDS: Record<Exclude<AddressClass, 'usable'>, string> = {
  unspecified: 'unspecified addresses',
  loopback: 'loopback addresses',
  linkLocal: 'link-local addresses',
  multicast: 'multicast addresses',
  broadcast: 'the broadcast address',
}

/** Undefined if the cluster may join with these facts. */
export function admitFacts(facts: ClusterFacts, ranges: ClustersetRanges): Refusal | undefined {
  return first(
    () => checkCount('podCIDRs', facts.podCIDRs.length, 1, FORMS.podCIDRs.most),
    () => checkCount('serviceCIDRs', facts.serviceCIDRs.length, 0, FORMS.serviceCIDRs.most),
    ...facts.podCIDRs.map((text, i) => () => admitPodCidr(`podCIDRs[${i}]`, text)),
    () => admitFamilies(facts.podCIDRs),
    ...facts.serviceCIDRs.map((text, i) => () => admitServiceCidr(`serviceCIDRs[${i}]`, text)),
    ...facts.podCIDRs.map((text, i) => () => admitClear(`podCIDRs[${i}]`, text, ranges)),
    ...facts.serviceCIDRs.map((text, i) => () => admitClear(`serviceCIDRs[${i}]`, text, ranges)),
    () => admitDisjoint(facts),
    () => admitNeeded(facts.neededCIDRs ?? []),
    () => admitLabels(facts.labels),
    () => (facts.properties === undefined ? undefined : checkForm(FORMS.properties, facts.properties, 'properties')),
    () => checkText('version', plainProblem(facts.version, 0, 64)),
  )
}

/** Undefined if a member may have these labels. */
export function admitLabels(labels: ClusterFacts['labels']): Refusal | undefined {
  return checkForm(FORMS.labels, labels, 'labels')
}

function admitPodCidr(field: string, text: string): Refusal | undefined {
  const prefix = parse(field, text)
  if (!isPrefix(prefix)) return prefix
  const [min, max] = [SHORTEST_PREFIX[prefix.family], MAX_POD_LENGTH[prefix.family]]
  if (prefix.length < min)
    return refusal(field, `${quote(text)} is too large: expected /${min} to /${max}`, 'RangeSize')
  if (prefix.length > max)
    return refusal(field, `${quote(text)} is too small: expected /${min} to /${max}`, 'RangeSize')
  return admitKind(field, text, prefix)
}

/**
 * Unique local (RFC 4193) and global unicast (RFC 4291 section 2.4) addresses, which pods and Services can have. API
 * servers do not accept every Cluster object with other ones, such as IPv4-mapped addresses.
 */
const CLUSTER_IPV6: readonly Prefix[] = ['fc00::/7', '2000::/3'].map((text) => parsePrefix(text))

function admitKind(field: string, text: string, prefix: Prefix): Refusal | undefined {
  // For IPv4 and special ranges, admitClear() names the problem.
  if (prefix.family === 4 || specialPart(prefix) !== undefined) return undefined
  if (isInside(prefix, CLUSTER_IPV6)) return undefined
  return refusal(field, `${quote(text)}: expected addresses inside ${CLUSTER_IPV6.map(formatPrefix).join(' or ')}`)
}

/** Gateways and nodes communicate over IPv4, and every service has an IPv4 clusterset IP. */
function admitFamilies(podCIDRs: readonly string[]): Refusal | undefined {
  if (ipv4Among(podCIDRs).length > 0) return undefined
  const expected = 'expected an IPv4 CIDR as well, this version does not connect pods without IPv4'
  return refusal('podCIDRs', `${podCIDRs.join(', ')}: ${expected}`, 'IPv4Missing')
}

/**
 * Service addresses never leave their cluster: the ranges only state which addresses a cluster reserves for itself. But
 * a member whose pods they overlap is translated permanently, or not reached by IPv6, so the ranges must not be too
 * large.
 */
function admitServiceCidr(field: string, text: string): Refusal | undefined {
  const prefix = parse(field, text)
  if (!isPrefix(prefix)) return prefix
  const min = SHORTEST_PREFIX[prefix.family]
  if (prefix.length < min)
    return refusal(field, `${quote(text)} is too large: expected /${min} or smaller`, 'RangeSize')
  return admitKind(field, text, prefix)
}

function admitClear(field: string, text: string, ranges: ClustersetRanges): Refusal | undefined {
  const prefix = parsePrefix(text)
  const special = specialPart(prefix)
  const clash =
    special === undefined
      ? reservedRanges(ranges).find(([range]) => overlaps(parsePrefix(range), prefix))
      : [formatPrefix(special.prefix), CLASS_WORDS[special.is]]
  if (clash === undefined) return undefined
  const what = field.startsWith('pod') ? 'pod' : 'service'
  return refusal(
    field,
    `${quote(text)} overlaps ${clash[0]} (${clash[1]}): expected ${what} addresses of the cluster's own`,
    'RangeReserved',
  )
}

/**
 * Undefined if all stated ranges are in private space, or are granted: by the member's token, or because an earlier
 * release accepted them. Takes facts that admitFacts() has admitted.
 */
export function admitSpace(facts: ClusterFacts, granted: readonly string[]): Refusal | undefined {
  const [public_] = publicCIDRs(facts, granted)
  if (public_ === undefined) return undefined
  const { field, text } = public_
  const own = UNGRANTED_SPACE.filter(({ family }) => family === parsePrefix(text).family).map(formatPrefix)
  const more = granted.length === 0 ? '' : `, or what its token names (${granted.join(', ')})`
  return refusal(
    field,
    `${quote(text)} is public space: expected addresses inside ${own.join(', ')}${more}; ` +
      `a token can allow more: "sealane token create --allow-cidr ${text}"`,
    'PublicSpaceNotAllowed',
  )
}

/** The stated ranges that need a grant and have none, each with its field. */
export function publicCIDRs(
  { podCIDRs, serviceCIDRs }: Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs'>,
  granted: readonly string[],
): { readonly field: string; readonly text: string }[] {
  const grants = granted.map((text) => parsePrefix(text))
  const stated = [
    ...podCIDRs.map((text, i) => ({ field: `podCIDRs[${i}]`, text })),
    ...serviceCIDRs.map((text, i) => ({ field: `serviceCIDRs[${i}]`, text })),
  ]
  return stated.filter(({ text }) => !mayState(parsePrefix(text), grants))
}

/** Pods of other members inside required ranges are translated, so the ranges must not be too large. */
function admitNeeded(neededCIDRs: readonly string[]): Refusal | undefined {
  return first(
    () => checkCount('neededCIDRs', neededCIDRs.length, 0, MAX_NEEDED),
    ...neededCIDRs.map((text, i) => () => {
      const field = `neededCIDRs[${i}]`
      const prefix = parse(field, text)
      if (!isPrefix(prefix)) return prefix
      const min = SHORTEST_NEEDED[prefix.family]
      if (prefix.length < min)
        return refusal(field, `${quote(text)} is too large: expected /${min} or smaller`, 'RangeSize')
      const special = specialPart(prefix)
      if (special === undefined) return undefined
      const clash = `${formatPrefix(special.prefix)} (${CLASS_WORDS[special.is]})`
      return refusal(field, `${quote(text)} overlaps ${clash}: expected addresses of machines`, 'RangeReserved')
    }),
  )
}

/** Within a cluster, an address must be unambiguous. */
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
        'RangesOverlap',
      )
  }
  return undefined
}

function parse(field: string, text: string): Prefix | Refusal {
  try {
    return parsePrefix(text, field)
  } catch (error) {
    // The message begins with the field, which the refusal names itself.
    return refusal(field, (error as Error).message.slice(field.length + 1))
  }
}

function isPrefix(value: Prefix | Refusal): value is Prefix {
  return 'length' in value
}

/**
 * Validates the status of a member, which is sent unchanged to every other member. Undefined if it may be stored. The
 * certificate identifies the member: a status names none.
 */
export function admitStatus(status: MemberStatus): Refusal | undefined {
  const wrong = statusProblem(status)
  return wrong && refusal(`status.${wrong.field}`, wrong.problem)
}
