/**
 * Plans which share of new connections each exporting cluster gets, and why. Decisions come in this order: access,
 * cluster selection (KEP-5939), tiers with weights and spill (TrafficPolicy). Zones and endpoints come after it. Pure.
 */
import type { ClusterSelector, ServiceImportType, TrafficPolicy, TrafficTier } from '../model.ts'
import type { ReasonCode } from '../reasons/reasons.ts'
import { MAX_TRAFFIC_WEIGHT } from '../values/values.ts'
import {
  type SelectorResults,
  labelRequirements,
  matcher,
  requirementsOf,
  selectorResults,
} from './cluster-selection.ts'

type Values = Readonly<Record<string, string>>

/** The fields of a policy that divide calls. */
export type TrafficRules = Omit<TrafficPolicy['spec'], 'targetRefs'>

/** A cluster as selectors see it. */
export interface SelectableCluster {
  readonly id: string
  /** Its ClusterProperties, as believedProperties() gives them. */
  readonly properties: Values
  readonly labels: Values
}

/** A cluster that exports the service, with its endpoints of one port or of the whole service. */
export interface ExportingCluster extends SelectableCluster {
  readonly ready: number
  /**
   * All endpoints, the ready ones included, without those that terminate and are not ready: a rollout
   * is no failure.
   */
  readonly total: number
  /** Endpoints that terminate and are not ready. Absent: none. They matter only where no endpoint is ready. */
  readonly terminating?: number
  /** Whether packets reach it. */
  readonly reachable: boolean
  /**
   * It is reached, but nothing has answered there for a moment. Absent: it answers. Where rules or selectors divide
   * calls, it gets none as long as a cluster that they name answers.
   */
  readonly unanswered?: boolean
  /** False: access policies let no namespace of this cluster call it. Absent: they do. */
  readonly allowed?: boolean
  /** What is drained. Absent: nothing. */
  readonly drained?: 'cluster' | 'service' | undefined
  /** With `drained`: open connections are ended too. */
  readonly endsConnections?: boolean
}

export interface SharesInput {
  /** The importing cluster. */
  readonly importer: SelectableCluster
  readonly type: ServiceImportType
  readonly clusterSelectors?: readonly ClusterSelector[] | undefined
  /** The results that are in force, which stay if the selectors cannot be evaluated. */
  readonly resultsBefore?: SelectorResults | undefined
  /** In any order, each once. */
  readonly clusters: readonly ExportingCluster[]
  /** The policy that counts for the service. */
  readonly rules?: TrafficRules | undefined
}

export interface ClusterShare {
  readonly cluster: string
  /** Share of new connections in 1/10,000. */
  readonly share: number
  /** Index in the order of the policy. Undefined: it is in no tier, or there is no order. */
  readonly tier?: number
  readonly ready: number
  readonly total: number
  /** The weight that the policy states. Undefined: by ready endpoints. */
  readonly weight?: number
  readonly reason: ReasonCode
  /** The reason in words. */
  readonly message: string
}

export interface SharesPlan {
  /** By cluster, sorted. They add up to 10,000, or to 0 if calls are refused. */
  readonly shares: readonly ClusterShare[]
  readonly refused: boolean
  /** Undefined without cluster selectors. */
  readonly results?: SelectorResults | undefined
}

/** One cluster during the plan. */
interface Candidate {
  readonly cluster: ExportingCluster
  readonly isSelected: boolean
  readonly tier: number | undefined
  readonly weight: number | undefined
  /** Whether it may get anything at all: allowed, reached and with an endpoint that is ready. */
  readonly canServe: boolean
  /** Whether new connections may go to it while others are ready. */
  readonly isOpen: boolean
}

interface TierState {
  readonly ready: number
  readonly total: number
  /** From 0 to 1. */
  readonly load: number
}

const WHOLE = MAX_TRAFFIC_WEIGHT
/** Sums of fractions are exact to this. */
const TINY = 1e-9

/** Gives the share of each cluster. The same clusters in another order give the same plan. */
export function planShares(input: SharesInput): SharesPlan {
  const isHeadless = input.type === 'Headless'
  const clusters = [...input.clusters].sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0))
  const selectors = isHeadless ? [] : (input.clusterSelectors ?? [])
  const results = selectorResults(selectors, input.importer.properties, clusters, input.resultsBefore)
  const rules = isHeadless && input.rules?.headless === undefined ? undefined : input.rules
  const among = (some: readonly ExportingCluster[]): Division => {
    return divided(candidatesOf(some, results, rules, input.importer), rules)
  }
  // Silence of a moment is no reason for the last resort, which may call what no tier and no selector names.
  const isDivided = rules !== undefined || results !== undefined
  const isSuspect = clusters.some(({ unanswered }) => unanswered === true)
  const all = isSuspect ? clusters.map((one) => ({ ...one, unanswered: false })) : clusters
  const isNamed = firstUsable(clusters, results) !== undefined || firstUsable(all, results) === undefined
  const answering = isDivided && isSuspect && isNamed ? among(clusters) : undefined
  const { shares, refused } = answering?.isServed === true ? answering : among(all)
  return { shares, refused, results }
}

/** Gives the shares as weights for balancing, without clusters that get nothing. */
export function weightsOf({ shares }: SharesPlan): ReadonlyMap<string, number> {
  return new Map(shares.flatMap(({ cluster, share }) => (share > 0 ? [[cluster, share] as const] : [])))
}

function candidatesOf(
  clusters: readonly ExportingCluster[],
  results: SelectorResults | undefined,
  rules: TrafficRules | undefined,
  importer: SelectableCluster,
): Candidate[] {
  const selected = firstUsable(clusters, results)
  const tiers = rules?.order ?? []
  const tests = tiers.map((tier) => tierTest(tier, importer))
  return clusters.map((cluster) => {
    const isSelected = selected === undefined || selected.has(cluster.id)
    const index = tests.length === 0 ? 0 : tests.findIndex((test) => test(cluster))
    const tier = isSelected && index >= 0 ? index : undefined
    const weights = tier === undefined ? undefined : tiers[tier]?.weights
    const weight = weights !== undefined && Object.hasOwn(weights, cluster.id) ? weights[cluster.id] : undefined
    const isOpen = cluster.drained === undefined && weight !== 0
    return { cluster, isSelected, tier, weight, canServe: canServe(cluster), isOpen }
  })
}

function canServe({ allowed, reachable, unanswered, ready }: ExportingCluster): boolean {
  return allowed !== false && reachable && unanswered !== true && ready > 0
}

/**
 * The clusters of the first result in which one has an endpoint that can be used. Undefined, which means all clusters, if
 * there is none (KEP-5939).
 */
function firstUsable(
  clusters: readonly ExportingCluster[],
  results: SelectorResults | undefined,
): ReadonlySet<string> | undefined {
  if (results === undefined) return undefined
  const open = new Set(clusters.filter((one) => canServe(one) && one.drained === undefined).map(({ id }) => id))
  const found = results.find((result) => result.clusters.some((id) => open.has(id)))
  return found && new Set(found.clusters)
}

/** A tier that this release does not understand has no cluster. */
function tierTest(tier: TrafficTier, importer: SelectableCluster): (cluster: ExportingCluster) => boolean {
  if (tier.local !== undefined) return ({ id }) => id === importer.id
  if (tier.clusters !== undefined) {
    const ids = new Set(tier.clusters)
    return ({ id }) => ids.has(id)
  }
  if (tier.selector === undefined) return () => tier.any !== undefined
  const { labels = {}, properties = {} } = tier.selector
  const byLabels = matcher(labelRequirements(labels), importer.labels)
  const byProperties = matcher(requirementsOf(properties), importer.properties)
  return (cluster) => byLabels(cluster.labels) && byProperties(cluster.properties)
}

interface Division extends Omit<SharesPlan, 'results'> {
  /** A tier has a ready endpoint for new connections. */
  readonly isServed: boolean
}

function divided(candidates: readonly Candidate[], rules: TrafficRules | undefined): Division {
  const hasOrder = (rules?.order ?? []).length > 0
  const states = tierStates(candidates, Math.max(1, rules?.order?.length ?? 0), rules?.spillBelowPercent ?? 0)
  const isServed = states.some(({ load }) => load > 0)
  const fallback = isServed ? undefined : lastResort(candidates, rules?.whenNoneReady ?? 'all')
  const fractions = fallback?.fractions ?? fractionsInTiers(candidates, states)
  const shares = apportioned(fractions)
  return {
    shares: candidates.map((one, i) => {
      const { cluster, tier, weight } = one
      const isFallback = fallback !== undefined && (fallback.fractions[i] ?? 0) > 0
      const [reason, message] = isFallback ? fallback.reason : reasonOf(one, states, fallback?.reason)
      return {
        cluster: cluster.id,
        share: shares[i] ?? 0,
        ...(tier === undefined || !hasOrder ? {} : { tier }),
        ready: cluster.ready,
        total: cluster.total,
        ...(weight === undefined ? {} : { weight }),
        ...{ reason, message },
      }
    }),
    refused: shares.every((share) => share === 0),
    isServed,
  }
}

/**
 * The load of each tier, as Envoy divides it over its priority levels: a tier with less than `percent` of its endpoints
 * ready keeps that part of the calls, and the rest goes on to the next.
 */
function tierStates(candidates: readonly Candidate[], tiers: number, percent: number): TierState[] {
  const states = Array.from({ length: tiers }, (_, index) => {
    const open = candidates.filter(({ tier, isOpen, cluster }) => {
      return tier === index && isOpen && cluster.allowed !== false
    })
    const ready = sum(open.map((one) => (one.canServe ? one.cluster.ready : 0)))
    const total = sum(open.map(({ cluster }) => Math.max(cluster.ready, cluster.total)))
    return { ready, total, health: healthOf(ready, total, percent) }
  })
  const all = Math.min(1, sum(states.map(({ health }) => health)))
  let left = 1
  return states.map(({ ready, total, health }) => {
    const load = health === 0 ? 0 : Math.min(left, health / all)
    left = left - load < TINY ? 0 : left - load
    return { ready, total, load }
  })
}

function healthOf(ready: number, total: number, percent: number): number {
  if (ready === 0) return 0
  return percent === 0 ? 1 : Math.min(1, (ready * 100) / (total * percent))
}

function fractionsInTiers(candidates: readonly Candidate[], states: readonly TierState[]): number[] {
  const weights = candidates.map(({ canServe, isOpen, tier, weight, cluster }) => {
    return tier !== undefined && canServe && isOpen ? (weight ?? cluster.ready) : 0
  })
  const ofTier = states.map((_, index) => sum(weights.filter((_weight, i) => candidates[i]?.tier === index)))
  return candidates.map(({ tier = 0 }, i) => {
    const weight = weights[i] ?? 0
    return weight === 0 ? 0 : ((states[tier]?.load ?? 0) * weight) / (ofTier[tier] ?? 1)
  })
}

interface LastResort {
  readonly fractions: readonly number[]
  readonly reason: readonly [ReasonCode, string]
}

/** No tier has a ready endpoint for new connections. */
function lastResort(candidates: readonly Candidate[], whenNoneReady: string): LastResort {
  const isAll = whenNoneReady === 'all'
  const by = (count: (one: Candidate) => number): number[] => {
    const counts = candidates.map(count)
    const all = sum(counts)
    return counts.map((one) => (all === 0 ? 0 : one / all))
  }
  const ready = (one: Candidate): number => (one.canServe ? one.cluster.ready : 0)
  const chosen = candidates.every(({ isSelected }) => isSelected) ? '' : ' that the selectors choose'
  const steps: LastResort[] = [
    // That no tier has a cluster is no reason to call what no selector chooses while another cluster is ready.
    {
      fractions: by((one) => (isAll && one.isOpen && one.isSelected ? ready(one) : 0)),
      reason: ['NoneReadyAll', `no tier has a ready endpoint: all clusters${chosen} are called`],
    },
    // Ready endpoints outside the tiers come before drained ones.
    {
      fractions: by((one) => (isAll && one.isOpen ? ready(one) : 0)),
      reason: ['NoneReadyAll', 'no tier has a ready endpoint: all clusters are called'],
    },
    {
      // With "refuse", a weight of 0 stays 0. A drain is another matter: its last endpoints are called.
      fractions: by((one) => (isAll || (one.tier !== undefined && one.weight !== 0) ? ready(one) : 0)),
      reason: ['LastReady', 'no other cluster has a ready endpoint'],
    },
    {
      fractions: by(({ cluster: { allowed, reachable, total, terminating = 0 } }) =>
        isAll && allowed !== false && reachable ? total + terminating : 0,
      ),
      reason: ['NoneReadyAll', 'no endpoint is ready: those that still serve are called'],
    },
  ]
  const refused: LastResort = {
    fractions: candidates.map(() => 0),
    reason: ['NoneReadyRefused', 'no endpoint is ready in any tier: calls are refused'],
  }
  return steps.find(({ fractions }) => fractions.some((one) => one > 0)) ?? refused
}

function reasonOf(
  { cluster, isSelected, tier, weight, canServe, isOpen }: Candidate,
  states: readonly TierState[],
  fallback: readonly [ReasonCode, string] | undefined,
): readonly [ReasonCode, string] {
  const ready = `${cluster.ready} of ${cluster.total} ready`
  if (cluster.allowed === false) return ['CallsNotAllowed', 'access policies let no namespace of this cluster call it']
  if (!cluster.reachable) return ['ClusterNotReached', `no packets reach it; ${ready}`]
  if (cluster.unanswered === true) return ['ClusterNotReached', `probes to it get no answer at the moment; ${ready}`]
  const isRefused = fallback?.[0] === 'NoneReadyRefused'
  const ended = cluster.endsConnections === true && !isRefused ? '; open connections are ended' : ''
  if (cluster.drained === 'cluster') return ['ClusterDrained', `the cluster is drained${ended}`]
  if (cluster.drained === 'service') return ['ServiceDrained', `its exporter drains the service${ended}`]
  if (!isSelected) return ['NotSelected', 'the cluster selectors choose others']
  if (tier === undefined) return ['InNoTier', 'no tier of the policy has it']
  if (!isOpen) return ['WeightZero', 'its weight is 0']
  if (!canServe) return fallback !== undefined && isRefused ? fallback : ['NoReadyEndpoint', ready]
  const load = states[tier]?.load ?? 0
  if (load === 0) return ['TierIdle', 'an earlier tier keeps all calls']
  const earlier = states.slice(0, tier).map((one, i) => `tier ${i} has ${one.ready} of ${one.total} ready`)
  if (earlier.length > 0) return ['Spilled', earlier.join('; ')]
  return weight === undefined ? ['ByReadyEndpoints', ready] : ['ByWeight', `weight ${weight}; ${ready}`]
}

/**
 * Takes fractions that add up to 1, or are all 0. Gives whole shares that add up to 10,000, by the largest remainder;
 * with equal remainders the first comes first. A fraction above 0 gets 1 at least, taken from the largest share: a
 * cluster that is to have calls is not left without any.
 */
function apportioned(fractions: readonly number[]): number[] {
  const exact = fractions.map((one) => one * WHOLE)
  const shares = exact.map((one) => Math.floor(one + TINY))
  const left = fractions.some((one) => one > 0) ? WHOLE - sum(shares) : 0
  const remainder = (i: number): number => Math.round(((exact[i] ?? 0) - (shares[i] ?? 0)) / TINY)
  const positive = [...exact.keys()].filter((i) => (exact[i] ?? 0) > 0)
  const first = [...positive].sort((a, b) => remainder(b) - remainder(a) || a - b).slice(0, left)
  for (const i of first) shares[i] = (shares[i] ?? 0) + 1
  for (const i of positive.filter((at) => shares[at] === 0)) {
    const largest = shares.reduce((best, share, at) => (share > (shares[best] ?? 0) ? at : best), 0)
    const most = shares[largest] ?? 0
    if (most < 2) break
    shares[i] = 1
    shares[largest] = most - 1
  }
  return shares
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, one) => all + one, 0)
}
