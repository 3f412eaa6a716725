/** Plans the status of traffic policies: the condition Valid, and the shares of the services they count for. Pure. */
import {
  type ConditionFinding,
  type EndpointSlice,
  LABEL_SERVICE_NAME,
  type ServiceImport,
  type ServiceKey,
  objectKeyText,
  serviceKey,
  setCondition,
} from '../../model/model.ts'
import type { KeptVersion } from '../../model/access/access.ts'
import { joinReasons } from '../../model/reasons/reasons.ts'
import {
  type AnyTrafficPolicy,
  type ClusterShare,
  type ServiceShares,
  type SharesWorld,
  type TrafficWorld,
  importPortText,
  sharesOfService,
  trafficNotes,
} from '../../model/services/services.ts'
import {
  MAX_REPORTED_PORTS,
  MAX_REPORTED_PORT_GROUPS,
  MAX_REPORTED_PORT_SHARES,
  MAX_REPORTED_SERVICES,
  MAX_REPORTED_SHARES,
} from '../../model/values/values.ts'
import { canonicalJson } from '../../protocol/codec/codec.ts'
import { type LostVersions, isLostVersion, keptVersion } from './plan-kept-versions.ts'

type Status = NonNullable<AnyTrafficPolicy['status']>
/** What a policy reports about shares. */
export type ReportedShares = Pick<Status, 'services' | 'servicesLeftOut'>
type ReportedService = NonNullable<Status['services']>[number]
type ReportedPortShare = NonNullable<ReportedService['portShares']>[number]['shares'][number]

export interface StatusWorld extends TrafficWorld {
  /** What each policy reports about shares, by objectKeyText(). One that is missing reports nothing. */
  readonly reports: ReadonlyMap<string, ReportedShares>
  /** What this process has written into `inForce`, by objectKeyText(): an API of an earlier release drops it each time. */
  readonly kept?: ReadonlyMap<string, KeptVersion>
  /** Absent: the API has kept all of it, as far as this process knows. */
  readonly lost?: LostVersions
}

/** Takes all policies of this cluster. Gives those whose status differs, with the new one. */
export function planTrafficStatuses(
  policies: readonly AnyTrafficPolicy[],
  world: StatusWorld,
  nowMs: number,
): AnyTrafficPolicy[] {
  return policies.flatMap((policy) => {
    const { generation } = policy.metadata
    const finding = findingOf(policy, world)
    const wanted = generation === undefined ? finding : { ...finding, observedGeneration: generation }
    const before = policy.status?.conditions ?? []
    const conditions = setCondition(before, wanted, nowMs)
    const key = objectKeyText(policy)
    const { services, servicesLeftOut, inForce = world.kept?.get(key) } = policy.status ?? {}
    const report = world.reports.get(key) ?? {}
    const counts = world.policies.seen.get(key)?.version
    const kept = keptVersion(key, counts, world.lost)
    const shown = [
      { services, servicesLeftOut, inForce },
      { ...report, inForce: kept },
    ].map(canonicalJson)
    if (conditions === before && shown[0] === shown[1]) return []
    const status = { conditions, ...report, ...(kept === undefined ? {} : { inForce: kept }) }
    return [{ ...policy, status }]
  })
}

/** A policy that is not valid leaves in force what it said before. All else is in force as written, and reported. */
function findingOf(policy: AnyTrafficPolicy, world: StatusWorld): ConditionFinding {
  const { problem, notes } = trafficNotes(policy, world)
  if (problem !== undefined) {
    const version = world.policies.seen.get(objectKeyText(policy))?.version
    const { generation } = version?.metadata ?? {}
    const stays =
      generation === undefined ? 'what it said before stays in force' : `generation ${generation} stays in force`
    const counts = version === undefined ? 'no earlier version is known, so calls go as without this policy' : stays
    const about = {
      type: 'Valid',
      status: 'False',
      reason: 'TrafficPolicyInvalid',
      message: `${problem}; ${counts}`,
    } as const
    if (version === undefined || !isLostVersion(objectKeyText(policy), version, world.lost)) return about
    const message = `${about.message}; the API server does not keep it, so parts that start go without this policy`
    return { ...about, reason: joinReasons([about.reason, 'PolicyVersionNotKept']), message }
  }
  const [first, ...more] = notes.map(([reason]) => reason)
  if (first === undefined) return { type: 'Valid', status: 'True', reason: 'TrafficPolicyInForce', message: '' }
  const message = notes.map(([, text]) => text).join('; ')
  return { type: 'Valid', status: 'True', reason: joinReasons([first, ...more]), message }
}

// The shares of the services that a policy counts for, bounded.

export interface ReportedWorld extends SharesWorld {
  readonly imports: readonly ServiceImport[]
  /** All slices of the local API; those of no import do not matter. */
  readonly slices: Iterable<EndpointSlice>
}

/** Gives what each policy reports, by objectKeyText(). A headless service counts only where its policy follows it. */
export function reportShares(world: ReportedWorld): ReadonlyMap<string, ReportedShares> {
  const found = new Map<string, ServiceImport[]>()
  for (const service of world.imports) {
    const { metadata, spec } = service
    const policy = world.policies.policyFor(metadata.namespace ?? '', metadata.name)
    if (policy === undefined || (spec.type === 'Headless' && policy.spec.headless === undefined)) continue
    const key = objectKeyText(policy)
    const list = found.get(key)
    if (list === undefined) found.set(key, [service])
    else list.push(service)
  }
  const shown = new Map<string, readonly ServiceImport[]>()
  for (const [key, services] of found) shown.set(key, services.sort(byKey).slice(0, MAX_REPORTED_SERVICES))
  const slices = slicesOf([...shown.values()].flat(), world.slices)
  return new Map(
    [...shown].map(([key, services]) => {
      const leftOut = (found.get(key)?.length ?? 0) - services.length
      const reported = services.flatMap((one) => reportedService(one, slices.get(keyOf(one)) ?? [], world) ?? [])
      return [key, { services: reported, ...(leftOut === 0 ? {} : { servicesLeftOut: leftOut }) }]
    }),
  )
}

/** The slices of some services, of the family of their first address: endpoints of two families count once. */
function slicesOf(
  services: readonly ServiceImport[],
  slices: Iterable<EndpointSlice>,
): ReadonlyMap<ServiceKey, readonly EndpointSlice[]> {
  const found = new Map(services.map((one) => [keyOf(one), [] as EndpointSlice[]]))
  const family = new Map(services.map((one) => [keyOf(one), one.spec.ipFamilies?.[0] ?? 'IPv4']))
  for (const slice of slices) {
    const name = slice.metadata.labels?.[LABEL_SERVICE_NAME]
    if (name === undefined) continue
    const key = serviceKey(slice.metadata.namespace ?? '', name)
    if (slice.addressType === family.get(key)) found.get(key)?.push(slice)
  }
  return found
}

function reportedService(
  service: ServiceImport,
  slices: readonly EndpointSlice[],
  world: SharesWorld,
): ReportedService | undefined {
  const plan = sharesOfService(service, slices, world)
  if (plan === undefined) return undefined
  const { namespace = '', name } = service.metadata
  return { namespace, name, ...boundedShares(plan.shares, MAX_REPORTED_SHARES), ...portShares(plan) }
}

interface BoundedShares<T> {
  readonly shares: readonly T[]
  readonly leftOut?: number
}

/** Those with the largest shares, sorted by cluster. */
function boundedShares<T extends { readonly share: number }>(shares: readonly T[], most: number): BoundedShares<T> {
  const leftOut = shares.length - most
  if (leftOut <= 0) return { shares: [...shares] }
  const largest = new Set([...shares].sort((a, b) => b.share - a.share).slice(0, most))
  return { shares: shares.filter((one) => largest.has(one)), leftOut }
}

/** Nothing for most services: all endpoints serve all ports. */
function portShares({ ports }: ServiceShares): Pick<ReportedService, 'portShares' | 'portSharesLeftOut'> {
  if (ports.length === 0) return {}
  const listed = ports.slice(0, MAX_REPORTED_PORT_GROUPS).map(({ of, shares }) => {
    const titles = of.map(importPortText)
    const portsLeftOut = titles.length - MAX_REPORTED_PORTS
    return {
      ports: titles.slice(0, MAX_REPORTED_PORTS),
      ...(portsLeftOut <= 0 ? {} : { portsLeftOut }),
      ...boundedShares(shares.map(portShare), MAX_REPORTED_PORT_SHARES),
    }
  })
  const portSharesLeftOut = ports.length - listed.length
  return { portShares: listed, ...(portSharesLeftOut === 0 ? {} : { portSharesLeftOut }) }
}

function portShare({ cluster, share, ready, total, reason }: ClusterShare): ReportedPortShare {
  return { cluster, share, ready, total, reason }
}

function keyOf({ metadata }: ServiceImport): ServiceKey {
  return serviceKey(metadata.namespace ?? '', metadata.name)
}

function byKey(a: ServiceImport, b: ServiceImport): number {
  return keyOf(a) < keyOf(b) ? -1 : 1
}
