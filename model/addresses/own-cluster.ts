/**
 * Decides which facts about itself a cluster accepts from the broker. The broker assigns the index and the global
 * addresses, and may leave the cluster's IPv6 out. Everything else is stated by the cluster, and a contradicting report
 * from the broker is rejected. Pure.
 */
import { isDeepStrictEqual } from 'node:util'
import { prefixPairs } from './addressing.ts'
import {
  InvalidAddressError,
  type Prefix,
  containsPrefix,
  formatPrefix,
  overlaps,
  parsePrefix,
  specialPart,
} from '../values/values.ts'
import { type Cluster, type ClusterId, type ClusterSpec, LANE_ADDRESS_RANGE } from '../model.ts'

/** Pod and Service CIDRs, as a cluster states them. */
export type StatedRanges = Pick<ClusterSpec, 'podCIDRs' | 'serviceCIDRs'>

export interface OwnFacts {
  readonly id: string
  /** As stated in the site file; undefined if only the cluster's own API has the facts. */
  readonly stated: (StatedRanges & Pick<ClusterSpec, 'labels'>) | undefined
  /** As stored in the cluster's own API; undefined if the object was deleted. */
  readonly local: ClusterSpec | undefined
  /** The global range from the join; '' or undefined if it is not known. */
  readonly globalRange: string | undefined
}

export interface BelievedCluster {
  /** Undefined if there is nothing to accept. */
  readonly spec: ClusterSpec | undefined
  /** Why the report is rejected, if it contradicts the known facts. */
  readonly problem?: string
}

/**
 * Takes the broker's report about this cluster, or undefined if there is none. A report that is accepted as a whole is
 * returned as the same object.
 */
export function believedCluster(reported: ClusterSpec | undefined, own: OwnFacts): BelievedCluster {
  const { local, stated } = own
  if (reported === undefined || isDeepStrictEqual(reported, local)) return { spec: reported ?? local }
  const problem = ownClusterProblem(reported, own)
  if (problem !== undefined) return { spec: local, problem }
  const labels = stated?.labels ?? local?.labels ?? reported.labels
  return { spec: isDeepStrictEqual(labels, reported.labels) ? reported : { ...reported, labels } }
}

/** Returns why this cluster cannot be as `reported`; undefined when it can. */
export function ownClusterProblem(
  reported: ClusterSpec,
  { id, stated, local, globalRange }: OwnFacts,
): string | undefined {
  if (reported.id !== id) return `id ${JSON.stringify(reported.id.slice(0, 100))}: expected ${id}`
  if (local !== undefined && reported.index !== local.index)
    return `index ${reported.index}: expected ${local.index}, that of the join`
  const known = stated ?? local
  return (known && rangesProblem(reported, known)) ?? globalProblem(reported, known ?? reported, globalRange)
}

/**
 * Like ownClusterProblem(), for pod and Service CIDRs alone: they must equal the stated ones, with or without their
 * IPv6.
 */
export function rangesProblem(reported: StatedRanges, stated: StatedRanges): string | undefined {
  for (const field of ['podCIDRs', 'serviceCIDRs'] as const) {
    const [said, expected] = [reported[field], stated[field]].map((texts) => texts.join(', '))
    if (said === expected || isCarriedOf(reported[field], stated[field])) continue
    return `${field} ${said === '' ? 'none' : said}: expected ${expected === '' ? 'none' : expected}, as this cluster states`
  }
  return undefined
}

/**
 * Returns why a range of the clusterset conflicts with this cluster; undefined when it does not. '' means that there is
 * no range. `field` is the name of the range for the message.
 */
export function rangeProblem(field: string, text: string, stated: StatedRanges): string | undefined {
  if (text === '') return undefined
  return inWords(() => {
    const range = parsePrefix(text, field)
    if (range.family !== 4) return `${field} ${text}: expected IPv4`
    const special = specialPart(range)
    if (special !== undefined) return `${field} ${text}: ${special.is} addresses`
    const lanes = overlaps(range, parsePrefix(LANE_ADDRESS_RANGE))
    return lanes ? `${field} ${text} overlaps the lanes' ${LANE_ADDRESS_RANGE}` : clash(field, range, stated)
  })
}

function isCarriedOf(reported: readonly string[], stated: readonly string[]): boolean {
  try {
    const said = reported.map((text) => formatPrefix(parsePrefix(text)))
    const all = stated.map((text) => parsePrefix(text))
    const four = all.filter(({ family }) => family === 4)
    return [all, four].some((list) => isDeepStrictEqual(list.map(formatPrefix), said))
  } catch (error) {
    if (error instanceof InvalidAddressError) return false
    throw error
  }
}

function globalProblem(
  reported: ClusterSpec,
  stated: StatedRanges,
  globalRange: string | undefined,
): string | undefined {
  return inWords(() => {
    const range = globalRange === undefined || globalRange === '' ? undefined : parsePrefix(globalRange, 'globalRange')
    // The global CIDR of an IPv6 CIDR is that CIDR itself; prefixPairs() has checked it.
    for (const { global } of prefixPairs(reported).filter(({ own }) => own.family === 4)) {
      if (range !== undefined && !containsPrefix(range, global))
        return `globalCIDRs ${formatPrefix(global)}: expected inside the global range ${formatPrefix(range)}`
      const taken = clash('globalCIDRs', global, stated)
      if (taken !== undefined) return taken
    }
    return undefined
  })
}

function clash(field: string, prefix: Prefix, stated: StatedRanges): string | undefined {
  const own = [...stated.podCIDRs, ...stated.serviceCIDRs].find((text) => overlaps(parsePrefix(text), prefix))
  return own === undefined ? undefined : `${field} ${formatPrefix(prefix)} overlaps ${own} of this cluster`
}

function inWords(validate: () => string | undefined): string | undefined {
  try {
    return validate()
  } catch (error) {
    if (error instanceof InvalidAddressError) return error.message
    throw error
  }
}

/**
 * What the broker assigns to a cluster that joins. Pod and Service CIDRs are empty where the broker accepts the stated
 * ones.
 */
export interface BrokerAnswer extends Pick<ClusterSpec, 'podCIDRs' | 'serviceCIDRs' | 'globalCIDRs'> {
  readonly clusterIndex: number
}

/** Builds the cluster's own Cluster object from the broker's answer. */
export function ownCluster(
  id: ClusterId,
  facts: StatedRanges & Pick<ClusterSpec, 'labels'>,
  answer: BrokerAnswer,
): Cluster {
  const { podCIDRs, serviceCIDRs } = answer.podCIDRs.length > 0 ? answer : facts
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Cluster',
    metadata: { name: id },
    spec: {
      id,
      index: answer.clusterIndex,
      podCIDRs,
      serviceCIDRs,
      globalCIDRs: answer.globalCIDRs,
      labels: facts.labels,
    },
  }
}
