/** Before a packet leaves: the name, the shares of clusters, who may call, and the backends. Pure. */
import {
  AccessRules,
  type Caller,
  callersIn,
  callersOf,
  choosesNamespace,
  egressRules,
  exposureOf,
  isOfferedTo,
  mayCall,
} from '../../model/access/access.ts'
import type { FamilyName } from '../../model/addresses/addresses.ts'
import {
  DNS_TTL_SECONDS,
  type EndpointSlice,
  LABEL_K8S_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  type NamespaceChoice,
  type SliceEndpoint,
  findCondition,
  importedHostname,
  namespaceLists,
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import {
  type ServiceShares,
  type SharesWorld,
  importPortText,
  sharesOfPort,
  statedShares,
  weightsOf,
} from '../../model/services/services.ts'
import { named } from '../facts/facts.ts'
import type { MemberView } from './member-view.ts'
import { type CalledPort, type DnsHost, toText } from './path-ends.ts'
import { sharesWorld } from './shares.ts'
import { type StepBase, type StepDraft, commandText, settled } from './station.ts'
import { type Backend, type Trip, type Way, familiesOf, isSameAddress, ofCall, ownOf } from './trip.ts'

type Service = NonNullable<Trip['service']>

export function callerStep(trip: Trip): StepDraft {
  const { here, caller, lacking } = trip
  const { title, address, node, namespace, source, at, without } = caller
  const base: StepBase = {
    ...{ direction: 'forward', station: 'caller', cluster: here.self, component: 'kubernetes', object: title },
    ...(node === undefined ? {} : { node }),
    ...{ evidence: 'configured', source, ageSeconds: here.ageOf(at), next: 'sealane show clusters' },
  }
  if (lacking !== undefined) {
    const message = `${title} has no ${named(lacking)} address, and ${toText(trip.to)} is called by no other family`
    return { ...base, decision: 'fails', reason: 'IPFamilyNotSupported', message }
  }
  const unknown = without ?? 'has no known address'
  const draft: StepDraft = {
    ...base,
    decision: address === undefined && without === undefined ? 'unknown' : 'passes',
    message: `${title} ${address === undefined ? unknown : `has ${address}`}`,
    notes: otherFamilies(trip),
  }
  return settled(draft, here, { namespace: namespace ?? undefined, nodes: node === undefined ? [] : [node] })
}

/** One family is explained, and a caller with both may use the other one. */
function otherFamilies(trip: Trip): readonly string[] {
  const { family, caller } = trip
  const offered = offeredFamilies(trip)
  const others = (caller.families ?? []).filter((one) => one !== family && offered.includes(one))
  return others.map((one) => `this is about ${family ?? ''}: for ${one}, explain FROM or TO by its ${one} address`)
}

/** The families by which the called end can be called, in the order of its import. Empty if they are not known. */
export function offeredFamilies({ here, to, imported, service }: Trip): readonly FamilyName[] {
  if (to.what === 'address') return familiesOf([to.address])
  if (imported === undefined || service === undefined) return []
  const { type, ips = [] } = imported.object.spec
  if (type !== 'Headless') return familiesOf(ips)
  const all = here.hasAddresses ? endpointsOf(here, service, to.host) : []
  return familiesOf(all.map(({ address }) => address)).toSorted()
}

/** What DNS answers. The name of a service that is not imported does not exist; why, a later station may say. */
export function nameStep(trip: Trip, why: WhyNot | undefined): StepDraft {
  const { here, to, imported } = trip
  const base: StepBase = {
    ...{ direction: 'forward', station: 'name', cluster: here.self, component: 'dns', object: toText(to) },
    ...{ evidence: 'computed', source: 'the objects of this cluster', ageSeconds: here.ageOf(here.world.takenAt) },
    next: 'sealane diagnose dns',
  }
  const scope = trip.service === undefined ? {} : { service: trip.service }
  if (imported === undefined) {
    const known = here.seen('ServiceImport')
    if (known === undefined) {
      const message = here.unansweredOf('ServiceImport') ?? 'ServiceImports could not be read'
      return { ...base, decision: 'unknown', reason: 'NotAnswered', message }
    }
    const message = `NXDOMAIN: this cluster imports no service of the name${why === undefined ? '' : `; ${why.message}`}`
    const reason = why?.reason ?? 'NameUnknown'
    const decision = why?.isRefusal === true ? 'follows' : 'fails'
    const next = reason === 'NotLinkedByTopology' ? 'sealane topology show' : 'sealane show services'
    return { ...base, decision, reason, message, next }
  }
  const { object, source, at } = imported
  const answers = answersOf(trip)
  const isHeadless = object.spec.type === 'Headless'
  if (!isHeadless && to.what === 'service' && to.host !== undefined) {
    const message = `NXDOMAIN: ${to.name}.${to.namespace} is not headless, and no name of it has a pod`
    return { ...base, source, decision: 'fails', reason: 'NameUnknown', message, next: 'sealane show services' }
  }
  const rest = { object: `ServiceImport ${object.metadata.namespace ?? ''}/${object.metadata.name}`, source }
  const age = here.ageOf(at)
  if (isHeadless && !here.hasAddresses) {
    const message = 'the addresses of its pods are not among the facts'
    return { ...base, ...rest, ageSeconds: age, decision: 'unknown', message }
  }
  const text = isHeadless
    ? 'headless: each ready pod of a cluster with a share'
    : 'clusterset IP, the same in all clusters'
  const draft: StepDraft =
    answers.length === 0
      ? { ...base, ...rest, ageSeconds: age, decision: 'follows', message: 'NXDOMAIN: no pod of the name is ready' }
      : {
          ...{ ...base, ...rest, ageSeconds: age, decision: 'passes' },
          message: `${named(answers, 8)} for ${DNS_TTL_SECONDS} s (${text})`,
        }
  return settled(draft, here, scope)
}

export interface Why {
  readonly reason: ReasonCode
  readonly message: string
}

/** Why a service is not imported. */
export interface WhyNot extends Why {
  /** The member that is the reason. Absent: this one. */
  readonly cluster?: string
  /** Its access policies keep this cluster out. */
  readonly isRefusal?: true
}

/**
 * Why this cluster does not import the service, as far as the exporters or the own namespaces say it. An exporter that
 * offers it comes before those that do not: it alone would be enough.
 */
export function whyNotImported({ here, far }: Trip, service: Service): WhyNot | undefined {
  const all = [...far.values()].flatMap((view) => whyNotFrom(view, here, service) ?? [])
  const missing = isMissing(here, service.namespace) ? namespaceMissing(service) : undefined
  const offering = all.find(({ isOffered }) => isOffered)?.why
  return (offering === undefined ? undefined : (missing ?? offering)) ?? all[0]?.why ?? missing
}

interface FromExporter {
  readonly isOffered: boolean
  readonly why: WhyNot
}

/** Undefined if the member does not export it. */
function whyNotFrom(view: MemberView, here: MemberView, service: Service): FromExporter | undefined {
  const found = view.find('ServiceExport', service.name, service.namespace)
  if (found === undefined) return undefined
  const cluster = view.self
  if (here.world.notLinked.has(cluster)) {
    const message = `${cluster} exports it, and the topology does not link this cluster with ${cluster}`
    return { isOffered: false, why: { reason: 'NotLinkedByTopology', message, cluster } }
  }
  const conditions = found.object.status?.conditions
  const bad = [findCondition(conditions, 'Valid'), findCondition(conditions, 'Ready')].find(
    (one) => one?.status === 'False',
  )
  const [cause] = view.findingsAt('name', { service }).why.filter(({ subject }) => subject.kind === 'ServiceExport')
  if (bad !== undefined && cause !== undefined) {
    const message = `${cluster} does not export it: ${cause.seen}`
    return { isOffered: false, why: { reason: cause.reason, message, cluster } }
  }
  const refusal = offerProblem(view, service, here.self, undefined)
  if (refusal !== undefined && refusal.reason !== 'NotAnswered') {
    return { isOffered: false, why: { ...refusal, cluster, isRefusal: true } }
  }
  if (cause !== undefined) {
    return { isOffered: true, why: { reason: cause.reason, message: `${cluster}: ${cause.seen}`, cluster } }
  }
  // That the name does not exist is certain; whether it is offered is not.
  if (refusal !== undefined) return { isOffered: false, why: { ...refusal, reason: 'NameUnknown', cluster } }
  const message = `${cluster} exports it, and this cluster does not import it`
  return { isOffered: true, why: { reason: 'ImportsMissing', message, cluster } }
}

function isMissing({ objects }: MemberView, namespace: string): boolean {
  return objects.Namespace !== undefined && !objects.Namespace.some(({ metadata }) => metadata.name === namespace)
}

function namespaceMissing({ namespace }: Service): Why {
  return { reason: 'NamespaceMissing', message: `namespace ${namespace} does not exist in this cluster` }
}

/**
 * Addresses that DNS answers, of any family. About a headless service, those of clusters that packets reach, and where
 * a policy says so, of clusters with a share; the names of single pods are answered without one.
 */
function answersOf(trip: Trip): readonly string[] {
  const { imported, here, to, service } = trip
  if (imported === undefined || service === undefined) return []
  const { type, ips = [] } = imported.object.spec
  if (type !== 'Headless') return ips
  const host = to.what === 'service' ? to.host : undefined
  const world = worldOfShares(here)
  return (['IPv4', 'IPv6'] as const).flatMap((family) => {
    const slices = here.slicesOf(service).filter(({ addressType }) => addressType === family)
    const plan = world && statedShares(imported.object, slices, world)
    const chosen = plan?.policy?.spec.headless === 'follow' && host === undefined ? weightsOf(plan) : undefined
    return endpointsIn(slices, host).flatMap(({ cluster, address, isReady }) => {
      const isAnswered = world?.reachable?.has(cluster) !== false && chosen?.has(cluster) !== false
      return isReady && isAnswered ? [address] : []
    })
  })
}

interface ImportedEndpoint {
  readonly cluster: string
  readonly address: string
  readonly isReady: boolean
}

/** The imported endpoints of a service, or of one of its hosts. */
function endpointsOf(here: MemberView, service: Service, host: DnsHost | undefined): readonly ImportedEndpoint[] {
  return endpointsIn(here.slicesOf(service), host)
}

function endpointsIn(slices: readonly EndpointSlice[], host: DnsHost | undefined): readonly ImportedEndpoint[] {
  return slices.flatMap(({ metadata, endpoints = [] }) => {
    const cluster = metadata.labels?.[LABEL_SOURCE_CLUSTER] ?? ''
    if (host !== undefined && host.cluster !== cluster) return []
    return endpoints.flatMap((endpoint) => {
      const isReady = endpoint.conditions?.ready !== false
      return endpoint.addresses.flatMap((address) =>
        isOfHost(endpoint, address, host) ? [{ cluster, address, isReady }] : [],
      )
    })
  })
}

function isOfHost(endpoint: SliceEndpoint, address: string, host: DnsHost | undefined): boolean {
  return host === undefined || importedHostname(endpoint, address) === host.hostname
}

/** The shares of the called port as balancing has them. Undefined if the membership or the service is not known. */
export function sharesOf(trip: Trip): ServiceShares | undefined {
  const { here, imported, service, to } = trip
  if (imported === undefined || service === undefined) return undefined
  const world = worldOfShares(here)
  const shares = world && statedShares(imported.object, ofCall(trip, here.slicesOf(service)), world)
  const port = imported.object.spec.ports.find((one) => one.port === to.port && isBy(one, to))
  return shares === undefined || port === undefined
    ? shares
    : { ...sharesOfPort(shares, port), policy: shares.policy, ports: [] }
}

function worldOfShares(here: MemberView): SharesWorld | undefined {
  const membership = here.list('Membership')?.[0]
  if (membership === undefined) return undefined
  return sharesWorld({
    membership,
    clusters: here.list('Cluster') ?? [],
    gateways: here.list('Gateway') ?? [],
    nodes: here.list('Node') ?? [],
    policies: here.objects.TrafficPolicy ?? [],
    clusterPolicies: here.objects.ClusterTrafficPolicy ?? [],
    accessPolicies: here.objects.ClusterAccessPolicy ?? [],
  })
}

/** Reasons for a share of 0 whose cause is at a later station. */
const LATER: readonly ReasonCode[] = ['ClusterNotReached', 'NoReadyEndpoint', 'CallsNotAllowed', 'NoneReadyRefused']

/** Whether a later station is the cause that no calls go to the cluster. */
export function hasLaterCause({ reason }: ServiceShares['shares'][number]): boolean {
  return LATER.includes(reason)
}

export function sharesStep(trip: Trip, { shares, refused, policy, ports }: ServiceShares): StepDraft {
  const { here, service } = trip
  const texts = shares.map(
    ({ cluster, share, reason, message }) => `${cluster} ${share / 100} %: ${reason}, ${message}`,
  )
  // A call without a port is about all of them.
  const others = ports.map((plan) => {
    const given = plan.shares.flatMap(({ cluster, share }) => (share > 0 ? [`${cluster} ${share / 100} %`] : []))
    const titles = plan.of.map(importPortText)
    return `port ${named(titles, 4)}: ${given.length === 0 ? 'no cluster gets calls' : given.join(', ')}`
  })
  // One cluster that could be called, and is not, is the decision of this station.
  const decisive = shares.find((one) => !hasLaterCause(one))
  const by = policy === undefined ? 'no policy counts' : `${policy.kind} ${policy.metadata.name}`
  const couldNot =
    here.objects.TrafficPolicy === undefined ? ['TrafficPolicies could not be read: none is counted'] : []
  const first = shares.find(({ reason }) => reason === 'NoneReadyRefused') ?? decisive ?? shares[0]
  const draft: StepDraft = {
    ...{ direction: 'forward', station: 'shares', cluster: here.self, component: 'routeagent' },
    object: policy === undefined ? `ServiceImport ${service?.namespace ?? ''}/${service?.name ?? ''}` : by,
    decision: refused ? (decisive === undefined ? 'follows' : 'fails') : couldNot.length > 0 ? 'unknown' : 'passes',
    ...(refused && first !== undefined ? { reason: first.reason } : {}),
    message: refused
      ? `no cluster gets calls (${by})`
      : `${shares.filter(({ share }) => share > 0).length} of ${shares.length} clusters get calls (${by})`,
    notes: [...couldNot, ...texts, ...others],
    ...{ evidence: 'computed', source: 'the objects of this cluster', ageSeconds: here.ageOf(here.world.takenAt) },
    next: trafficCommand(service),
  }
  return settled(draft, here, service === undefined ? {} : { service })
}

function trafficCommand(service: Trip['service']): string | undefined {
  return service && commandText('show traffic', `${service.namespace}/${service.name}`)
}

/** Whether the caller may: by the egress of its own cluster, by what the exporter offers, and by its exposure. */
export function accessStep(trip: Trip, { cluster }: Way): StepDraft {
  const { here, caller, service } = trip
  const isHere = cluster === here.self
  const title = service === undefined ? toText(trip.to) : `${service.name}.${service.namespace}`
  const base = accessBase(trip)
  if (isHere)
    return { ...base, decision: 'passes', message: 'both are in this cluster, within which Sealane limits nothing' }
  const answers = [egressAnswer(trip, cluster), offerAnswer(trip, cluster), exporterAnswer(trip, cluster)]
  const refusal = answers.find((one) => one.decision === 'fails')
  const open = answers.find((one) => one.decision === 'unknown')
  const decisive = refusal ?? open
  const notes = answers.filter((one) => one !== decisive).map(({ message }) => message)
  if (decisive === undefined) {
    return { ...base, decision: 'passes', message: `${caller.title} may call ${title} in ${cluster}`, notes }
  }
  const { cluster: decider = here.self } = decisive
  const { service: called, ...found } = decisive
  return { ...base, ...found, ...accessCommand(trip, decider, called ?? service), cluster: decider, notes }
}

/** The exporter does not offer the service to this cluster, which is why the name does not exist. */
export function refusedStep(trip: Trip, { reason, message, cluster = trip.here.self }: WhyNot): StepDraft {
  const at = accessCommand(trip, cluster, trip.service)
  const view = trip.far.get(cluster)
  const isOpen = exposureOf(view?.list('Membership')?.[0]) === 'pods'
  const notes = isOpen ? [`${cluster} exposes all its pods: they answer at their addresses`] : []
  return { ...accessBase(trip), ...at, cluster, decision: 'fails', reason, message, notes }
}

function accessBase(trip: Trip): StepBase {
  const { here, service } = trip
  return {
    ...{ direction: 'forward', station: 'access', cluster: here.self, component: 'routeagent' },
    object: service === undefined ? toText(trip.to) : `${service.name}.${service.namespace}`,
    ...{ evidence: 'computed', source: 'the objects of this cluster', ageSeconds: here.ageOf(here.world.takenAt) },
    ...accessCommand(trip, here.self, service),
  }
}

/**
 * The command that says the same at the member that decides. It takes a service, and at the exporter also the own
 * address of a pod with a port, which it takes as one of TCP.
 */
function accessCommand(trip: Trip, decider: string, service: Trip['service']): Pick<StepDraft, 'next' | 'nextAt'> {
  const { here, caller, to } = trip
  const isHere = decider === here.self
  const at = isHere ? {} : { nextAt: decider }
  const from = typeof caller.namespace === 'string' ? `${here.self}/${caller.namespace}` : here.self
  if (service !== undefined)
    return { next: commandText('access check', from, `${service.name}.${service.namespace}`), ...at }
  if (isHere) return {}
  if (to.what !== 'address' || to.port === undefined || to.protocol !== 'tcp')
    return { next: commandText('show access'), ...at }
  const own = toText({ ...to, address: ownOf(to.address, decider, here) })
  return { next: commandText('access check', from, own), ...at }
}

type Answer = Pick<StepDraft, 'decision' | 'message' | 'reason'> & {
  readonly cluster?: string
  /** The service that the called address belongs to. */
  readonly service?: Service
}

function egressAnswer({ here, caller }: Trip, cluster: string): Answer {
  const { ClusterAccessPolicy: policies } = here.objects
  if (policies === undefined) {
    if (here.world.atSite) return { decision: 'passes', message: 'a site has no namespaces that egress limits' }
    const message = here.unansweredOf('ClusterAccessPolicy') ?? 'ClusterAccessPolicy is not among the facts'
    return { decision: 'unknown', reason: 'NotAnswered', message }
  }
  const choice = egressRules(policies, here.list('Cluster') ?? [])?.to(cluster)
  const by = 'spec.egress of the ClusterAccessPolicy'
  return choiceAnswer(here, caller.namespace, choice, { by, reason: 'access-egress' })
}

/** What the exporter offers travels with its slices. */
function offerAnswer({ here, caller, service, to }: Trip, cluster: string): Answer {
  const slices = service === undefined ? slicesAt(here, to, cluster) : slicesFrom(here, service, cluster)
  if (slices.length === 0) {
    return { decision: 'passes', message: `no record of ${cluster} says to whom it is offered` }
  }
  const choices = slices.map(callersOf)
  if (choices.includes(undefined)) return { decision: 'passes', message: `${cluster} offers it to all namespaces here` }
  const answers = choices.map((choice) =>
    choiceAnswer(here, caller.namespace, choice, { by: `the offer of ${cluster}`, reason: 'access-namespace' }),
  )
  return answers.find(({ decision }) => decision !== 'fails') ?? answers[0] ?? { decision: 'passes', message: '' }
}

function choiceAnswer(
  here: MemberView,
  namespace: string | null | undefined,
  choice: NamespaceChoice | undefined,
  { by, reason }: { readonly by: string; readonly reason: ReasonCode },
): Answer {
  if (choice === undefined) return { decision: 'passes', message: `${by} limits no namespace` }
  if (namespace === undefined)
    return { decision: 'unknown', reason, message: `${by} names namespaces, and that of the caller is not known` }
  if (namespace === null)
    return { decision: 'fails', reason, message: `${by} lets in namespaces, and the caller is a node` }
  const labels = here.objects.Namespace?.find(({ metadata }) => metadata.name === namespace)?.metadata.labels
  if (choosesNamespace(choice, { name: namespace, labels }))
    return { decision: 'passes', message: `${by} names ${namespace}` }
  if (labels === undefined && here.objects.Namespace === undefined && choice.selectors.length > 0) {
    return {
      decision: 'unknown',
      reason,
      message: `${by} chooses by labels, and those of namespace ${namespace} are not known`,
    }
  }
  return { decision: 'fails', reason, message: `${by} does not name namespace ${namespace}` }
}

/** What the exporter itself enforces: known here by its records alone, unless it was asked. */
function exporterAnswer({ here, far, caller, service, to }: Trip, cluster: string): Answer {
  const view = far.get(cluster)
  if (view === undefined) {
    if (service !== undefined || slicesAt(here, to, cluster).length > 0) {
      return { decision: 'passes', message: `${cluster} was not asked; what it offers is in its records` }
    }
    const message = `whether ${cluster} exposes all its pods is known there only`
    return { decision: 'unknown', reason: 'FarSideNotAsked', message, cluster }
  }
  const exposure = exposureOf(view.list('Membership')?.[0])
  if (exposure === 'pods') return { decision: 'passes', message: `${cluster} exposes all its pods` }
  const called = service ?? serviceAt(view, to)
  if (called === undefined) {
    const message = `${toText(to)} belongs to no exported service of ${cluster}`
    return { decision: 'fails', reason: 'access-not-exported', message, cluster }
  }
  const namespaces = here.objects.Namespace
  const metadata = namespaces?.find((one) => one.metadata.name === caller.namespace)?.metadata
  const place =
    caller.namespace === undefined || caller.namespace === null
      ? undefined
      : {
          name: caller.namespace,
          isRead: namespaces !== undefined,
          ...(metadata === undefined ? {} : { labels: metadata.labels ?? {} }),
        }
  const problem = offerProblem(view, called, here.self, place)
  if (problem === undefined) return { decision: 'passes', message: `${cluster} lets it in` }
  return { decision: problem.reason === 'NotAnswered' ? 'unknown' : 'fails', ...problem, cluster, service: called }
}

/** Why the exporter does not let in the cluster, or its namespace if that is given. */
function offerProblem(
  view: MemberView,
  { namespace, name }: Service,
  from: string,
  place: (Caller['namespace'] & { readonly isRead: boolean }) | undefined,
): Why | undefined {
  const { AccessPolicy: policies, ClusterAccessPolicy: clusterPolicies } = view.objects
  const membership = view.list('Membership')?.[0]
  if (membership === undefined || policies === undefined || clusterPolicies === undefined) {
    return { reason: 'NotAnswered', message: `the access policies of ${view.self} are not among the facts` }
  }
  if (exposureOf(membership) === 'nothing')
    return { reason: 'CallsNotAllowed', message: `${view.self} exposes nothing` }
  const rules = new AccessRules({
    self: view.self,
    clustersetDefault: membership.spec.accessDefault,
    namespaces: namespaceLists(membership),
    ...{ clusterPolicies, policies, clusters: view.list('Cluster') ?? [] },
  })
  const { offer, cause } = rules.offerOf(namespace, name)
  const by = cause.by === 'policies' ? `AccessPolicy ${named(cause.names)}` : `its ${cause.by}`
  if (!isOfferedTo(offer, from)) {
    return { reason: 'CallsNotAllowed', message: `${view.self} does not offer ${name}.${namespace} to ${from} (${by})` }
  }
  if (place === undefined || mayCall(offer, { cluster: from, namespace: place })) return undefined
  if (!place.isRead && callersIn(offer, from)?.selectors.length !== 0)
    return {
      reason: 'NotAnswered',
      message: `the labels of namespace ${place.name} of ${from} are not among the facts`,
    }
  const message = `${view.self} does not offer ${name}.${namespace} to namespace ${place.name} of ${from} (${by})`
  return { reason: 'access-not-offered', message }
}

function slicesFrom(view: MemberView, service: Service, cluster: string): EndpointSlice[] {
  return view.slicesOf(service).filter(({ metadata }) => metadata.labels?.[LABEL_SOURCE_CLUSTER] === cluster)
}

/** Imported slices with the called address and port. */
function slicesAt(view: MemberView, to: Trip['to'], cluster: string): EndpointSlice[] {
  if (to.what !== 'address') return []
  return [...view.slices()].flat().filter((slice) => {
    return slice.metadata.labels?.[LABEL_SOURCE_CLUSTER] === cluster && hasBackend(slice, to.address, to)
  })
}

/** The exported service of the asked member with the address, in the way that other clusters name it. */
function serviceAt(view: MemberView, to: Trip['to']): Service | undefined {
  if (to.what !== 'address') return undefined
  const address = ownOf(to.address, view.self, view)
  for (const slices of view.slices()) {
    for (const slice of slices) {
      const { namespace = '', labels = {} } = slice.metadata
      const name = labels[LABEL_K8S_SERVICE_NAME]
      if (name === undefined || LABEL_SOURCE_CLUSTER in labels || !hasBackend(slice, address, to)) continue
      if (view.find('ServiceExport', name, namespace) !== undefined) return { namespace, name }
    }
  }
  return undefined
}

function hasBackend({ endpoints = [], ports = [] }: EndpointSlice, address: string, to: CalledPort): boolean {
  if (to.port !== undefined && !ports.some((one) => one.port === to.port && isBy(one, to))) return false
  return endpoints.some(({ addresses }) => addresses.some((one) => isSameAddress(one, address)))
}

/** A port without a protocol is one of TCP (discovery.k8s.io/v1). */
function isBy({ protocol = 'TCP' }: { readonly protocol?: string | undefined }, to: CalledPort): boolean {
  return protocol.toLowerCase() === to.protocol
}

/** The ready backends of one cluster, and why the others are left out. */
export function backendsOf(trip: Trip, cluster: string): readonly Backend[] {
  const { service, here, to } = trip
  if (to.what === 'address' && service === undefined) return [{ address: to.address, port: to.port }]
  if (service === undefined) return []
  const host = to.what === 'service' ? to.host : undefined
  const port = portName(trip)
  return ofCall(trip, slicesFrom(here, service, cluster)).flatMap(({ endpoints = [], ports = [] }) => {
    const ofProtocol = port === undefined ? ports : ports.filter((one) => isBy(one, to))
    const isOnly = ofProtocol.length === 1
    const target = ofProtocol.find((one) => port === undefined || one.name === port.name || isOnly)?.port
    return endpoints.flatMap((endpoint) => {
      if (endpoint.conditions?.ready === false) return []
      const known = endpoint.addresses.filter((address) => isOfHost(endpoint, address, host))
      return known.map((address) => ({ address: here.hasAddresses ? address : '', port: target }))
    })
  })
}

function portName({ imported, to }: Trip): { readonly name: string | undefined } | undefined {
  const found = imported?.object.spec.ports.find((one) => one.port === to.port && isBy(one, to))
  return found === undefined ? undefined : { name: found.name }
}

export function backendsStep(trip: Trip, way: Way, shares: ServiceShares | undefined): StepDraft {
  const { here, service, imported, to } = trip
  const { cluster, backends } = way
  const base: StepBase = {
    ...{ direction: 'forward', station: 'backends', cluster, component: 'agent', evidence: 'configured' },
    ...{
      source: imported?.source ?? 'the objects of this cluster',
      ageSeconds: here.ageOf(imported?.at ?? here.world.takenAt),
    },
    object:
      service === undefined ? toText(to) : `EndpointSlices of ${service.namespace}/${service.name} from ${cluster}`,
    next: service === undefined ? 'sealane show clusters' : trafficCommand(service),
  }
  if (service === undefined)
    return { ...base, decision: 'passes', message: `${toText(to)} is an address of ${cluster}` }
  const ports = imported?.object.spec.ports ?? []
  const isPort =
    to.port === undefined || ports.length === 0 || ports.some((one) => one.port === to.port && isBy(one, to))
  if (!isPort) {
    const texts = ports.map(({ port, protocol }) => `${protocol} ${port}`)
    return {
      ...base,
      decision: 'fails',
      reason: 'PortUnknown',
      message: `port ${to.protocol} ${to.port ?? ''} is none of ${named(texts)}`,
    }
  }
  const slices = ofCall(trip, slicesFrom(here, service, cluster))
  const all = slices.flatMap(({ endpoints = [] }) => endpoints)
  const left = all.filter(({ conditions }) => conditions?.ready === false)
  const notes = [
    ...left
      .slice(0, 5)
      .map(
        ({ addresses, conditions }) =>
          `${addresses[0] ?? '-'} is left out: ${conditions?.terminating === true ? 'it terminates' : 'its cluster says that it is not ready'}`,
      ),
    ...(left.length > 5 ? [`${left.length - 5} more are left out: not ready`] : []),
    ...(shares?.policy?.spec.passiveHealth === undefined
      ? []
      : ['nodes leave out endpoints that refuse or do not answer: see the log of the routeagent']),
  ]
  const scope = { service }
  const count = `${backends.length} of ${all.length} pods ready in ${cluster}`
  if (backends.length > 0)
    return settled(
      {
        ...base,
        decision: 'passes',
        message: here.hasAddresses
          ? `${count}: ${named(
              backends.map(({ address }) => address),
              4,
            )}`
          : count,
        notes,
      },
      here,
      scope,
    )
  // Where no tier has a ready endpoint, those that still serve are called, but DNS answers only ready ones.
  const isHeadless = imported?.object.spec.type === 'Headless'
  const isCalled = !isHeadless && (way.share ?? 0) > 0 && all.length > 0
  const draft: StepDraft = {
    ...base,
    decision: isCalled ? 'partly' : 'fails',
    reason: 'NoReadyEndpoint',
    message: count,
    notes,
  }
  const view = trip.far.get(cluster)
  const found = view === undefined ? draft : settled(draft, view, scope)
  return found.reason === 'NoReadyEndpoint' ? settled(found, here, scope) : found
}
