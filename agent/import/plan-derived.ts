/**
 * Plans derived Services: for each import whose annotations ask for it, a Service without selector, and a copy of each
 * imported slice whose cluster gets calls. All objects come from the local API, so a lost broker changes nothing. Pure.
 */
import {
  APP_MANAGED_BY_SEALANE,
  CONDITION_DERIVED_SERVICE,
  type ConditionFinding,
  type EndpointSlice,
  type KubeObject,
  LABEL_APP_MANAGED_BY,
  LABEL_K8S_SERVICE_NAME,
  LABEL_MANAGED_BY,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  MANAGED_BY_SEALANE,
  type Namespace,
  type Service,
  type ServiceImport,
  type ServiceKey,
  findCondition,
  nameHash,
  objectKeyText,
  serviceKey,
} from '../../model/model.ts'
import { type ReasonCode, joinReasons } from '../../model/reasons/reasons.ts'
import {
  type IpFamily,
  LABEL_DERIVED,
  LABEL_DERIVED_FROM,
  type ServiceShares,
  type SharesPlan,
  type SharesWorld,
  derivedName,
  isDerived,
  portId,
  sharesOfPort,
  sharesOfService,
  usersReason,
} from '../../model/services/services.ts'
import { KeyedMemo } from '../../reconcile/reconcile.ts'

/** On derived Services: the ports that the agent wrote, `TCP/80,UDP/53`. */
const ANNOTATION_WRITTEN_PORTS = 'sealane.io/derived-ports'

export interface DerivedWorld {
  readonly imports: readonly ServiceImport[]
  /** Namespaces that exist here and are not terminating, by name. */
  readonly namespaces: ReadonlyMap<string, Namespace>
  readonly services: readonly Service[]
  readonly slices: readonly EndpointSlice[]
  /** Families of the cluster IPs of this cluster. Empty: unknown, and then the API server decides. */
  readonly serviceFamilies: readonly IpFamily[]
  /** Whether there are consumers of Services here. A plain site has none. */
  readonly isOffered: boolean
  readonly shares: SharesWorld
}

/** What an import's condition is to say. */
export interface DerivedFinding {
  readonly serviceImport: ServiceImport
  readonly finding: ConditionFinding
  /** Undefined: none is to be written. */
  readonly service: Service | undefined
}

export interface DerivedPlan {
  /** By objectKeyText(). */
  readonly objects: ReadonlyMap<string, KubeObject>
  /** Services first: a client that no longer finds the Service asks for no endpoint. */
  readonly remove: readonly KubeObject[]
  readonly findings: readonly DerivedFinding[]
}

/** The derived slices. It saves work, and does not change the result: the writer recognises the same object. */
export type DerivedMemory = KeyedMemo<EndpointSlice>

/** Takes objects in any order and, to save work, the cache of the previous round. */
export function planDerived(world: DerivedWorld, memory: DerivedMemory = new KeyedMemo()): DerivedPlan {
  const concerned = world.imports.filter((one) => isMirrored(one) && isConcerned(one, world)).sort(byAge)
  const objects = new Map<string, KubeObject>()
  const findings: DerivedFinding[] = []
  // Mostly nothing is asked for, and a site has many services and slices.
  const isIdle = concerned.length === 0
  const present = new Map(isIdle ? [] : world.services.map((service) => [keyOf(service), service]))
  const byImport = importedSlices(isIdle ? [] : world.slices, new Set(concerned.map(keyOf)))
  const taken = new Map<ServiceKey, string>()
  for (const serviceImport of concerned) {
    const planned = planOne(serviceImport, { world, memory, taken, present, byImport })
    if (planned === undefined) continue
    const { finding, service, slices } = planned
    findings.push({ serviceImport, finding, service })
    if (service === undefined) continue
    const before = present.get(keyOf(service))
    // The next round writes the Service, once the cache shows that it is gone.
    const isReplaced = before !== undefined && (!isSameKind(before, service) || hasForeignPort(before))
    if (!isReplaced) objects.set(objectKeyText(service), service)
    for (const slice of slices) objects.set(objectKeyText(slice), slice)
  }
  memory.endRound()
  const there = derivedAmong([...world.services, ...world.slices])
  return { objects, remove: there.filter((one) => !objects.has(objectKeyText(one))), findings }
}

/** All derived objects, which are removed when this cluster leaves. Services that a user took over are none. */
export function derivedAmong(objects: readonly KubeObject[]): KubeObject[] {
  return objects.filter((one) => (one.kind === 'Service' ? usersReason(one) === undefined : isDerivedSlice(one)))
}

interface Planning {
  readonly world: DerivedWorld
  readonly memory: DerivedMemory
  /** The name of the import that has the Service. */
  readonly taken: Map<ServiceKey, string>
  readonly present: ReadonlyMap<ServiceKey, Service>
  readonly byImport: ReadonlyMap<ServiceKey, readonly EndpointSlice[]>
}

interface PlannedDerived {
  readonly finding: ConditionFinding
  readonly service: Service | undefined
  readonly slices: readonly EndpointSlice[]
}

/** Undefined: nothing is asked for and nothing is to be said. */
function planOne(
  serviceImport: ServiceImport,
  { world, memory, taken, present, byImport }: Planning,
): PlannedDerived | undefined {
  const { namespace = '', name: from } = serviceImport.metadata
  const place = world.namespaces.get(namespace)
  if (place === undefined) return undefined
  const asked = derivedName(serviceImport, place)
  if (asked.t === 'none') {
    const said = findCondition(serviceImport.status?.conditions, CONDITION_DERIVED_SERVICE)
    return said === undefined ? undefined : refused('DerivedServiceNotAsked', 'no annotation asks for it')
  }
  if (!world.isOffered)
    return refused('DerivedServiceNotOffered', 'a site without Kubernetes has no consumers of Services')
  if (asked.t === 'wrong') return refused('DerivedServiceNameInvalid', asked.message)
  const key = serviceKey(namespace, asked.name)
  const owner = taken.get(key)
  if (owner !== undefined)
    return refused('DerivedServiceNameTaken', `Service ${key} is derived from ServiceImport ${owner}, which is older`)
  const before = present.get(key)
  const users = before === undefined ? undefined : usersReason(before)
  if (users !== undefined) return refused('DerivedServiceNameTaken', `Service ${key} exists, and ${users}`)
  const families = familiesOf(serviceImport, world.serviceFamilies)
  if (families !== undefined && families.length === 0) {
    const has = serviceImport.spec.ipFamilies?.join(' and ') ?? ''
    return refused(
      'IPFamilyNotSupported',
      `the service has ${has} addresses, for which this cluster has no cluster IPs`,
    )
  }
  const { type, ports } = serviceImport.spec
  if (type !== 'Headless' && ports.length === 0)
    return refused('DerivedServiceNameInvalid', 'the import has no port, and a Service with a cluster IP has one')
  taken.set(key, from)
  const counted = countedSlices(serviceImport, byImport.get(serviceKey(namespace, from)) ?? [], world.shares)
  // The policy counts without endpoints too: a Service keeps its session affinity while all clusters are out of reach.
  const policy = world.shares.policies.policyFor(namespace, from)
  const service = derivedService(serviceImport, asked.name, { families, policy })
  const { uid } = serviceImport.metadata
  const slices = counted.slices.map(({ slice, ports }) =>
    memory.get(`${key}/${slice.metadata.name}`, [slice, from, uid, ports?.map(portId).join()], () =>
      derivedSlice(ports === undefined ? slice : { ...slice, ports }, asked.name, serviceImport),
    ),
  )
  return { finding: readyFinding(key, counted), service, slices }
}

function readyFinding(key: string, { hasLostWeights, leftOut }: Counted): ConditionFinding {
  const without = leftOut.length === 0 ? '' : `; without endpoints of ${leftOut.join(', ')}`
  const weights = '; weights cannot be had: each ready endpoint gets the same share'
  return {
    type: CONDITION_DERIVED_SERVICE,
    status: 'True',
    reason: hasLostWeights
      ? joinReasons(['DerivedServiceReady', 'DerivedServiceWithoutWeights'])
      : ('DerivedServiceReady' satisfies ReasonCode),
    message: `Service ${key}${without}${hasLostWeights ? weights : ''}`,
  }
}

function refused(reason: ReasonCode, message: string): PlannedDerived {
  const finding = { type: CONDITION_DERIVED_SERVICE, status: 'False', reason, message } as const
  return { finding, service: undefined, slices: [] }
}

// Which slices count.

interface CountedSlice {
  readonly slice: EndpointSlice
  /** Those of its ports in whose calls the cluster has a share. Undefined: all. */
  readonly ports?: NonNullable<EndpointSlice['ports']>
}

interface Counted {
  readonly slices: readonly CountedSlice[]
  /** Clusters with endpoints that get no calls, sorted. */
  readonly leftOut: readonly string[]
  /** Whether a policy divides calls otherwise than by ready endpoints, which a Service cannot. */
  readonly hasLostWeights: boolean
}

function countedSlices(serviceImport: ServiceImport, imported: readonly EndpointSlice[], world: SharesWorld): Counted {
  const slices: CountedSlice[] = []
  const leftOut = new Set<string>()
  let hasLostWeights = false
  for (const addressType of ['IPv4', 'IPv6'] as const) {
    const ofFamily = imported.filter((slice) => slice.addressType === addressType)
    if (ofFamily.length === 0) continue
    const shares = sharesOfService(serviceImport, ofFamily, world)
    hasLostWeights ||= shares !== undefined && dividesOtherwise(shares, serviceImport)
    const counted = ofFamily.flatMap((slice) => countedSlice(slice, shares, world) ?? [])
    slices.push(...counted)
    const given = new Set(counted.map(({ slice }) => sourceOf(slice)))
    for (const cluster of ofFamily.map(sourceOf)) if (!given.has(cluster)) leftOut.add(cluster)
  }
  return { slices, leftOut: [...leftOut].sort(), hasLostWeights }
}

/** Undefined: its cluster gets no calls of any of its ports. */
function countedSlice(
  slice: EndpointSlice,
  shares: ServiceShares | undefined,
  { reachable }: SharesWorld,
): CountedSlice | undefined {
  const cluster = sourceOf(slice)
  if (shares === undefined) return reachable === undefined || reachable.has(cluster) ? { slice } : undefined
  const { ports = [] } = slice
  if (shares.ports.length === 0 || ports.length === 0) return isGiven(shares, cluster) ? { slice } : undefined
  const given = ports.filter((port) => isGiven(sharesOfPort(shares, port), cluster))
  if (given.length === ports.length) return { slice }
  return given.length === 0 ? undefined : { slice, ports: given }
}

function isGiven({ shares }: SharesPlan, id: string): boolean {
  return shares.some(({ cluster, share }) => cluster === id && share > 0)
}

const WHOLE = 10_000

/** Whether ready endpoints of the clusters that get calls, each counting alike, would be called otherwise. */
function dividesOtherwise(shares: ServiceShares, { spec }: ServiceImport): boolean {
  const ofPorts = new Set(spec.ports.map((port) => sharesOfPort(shares, port)))
  return [...(ofPorts.size === 0 ? [shares] : ofPorts)].some((plan) => {
    const given = plan.shares.filter(({ share }) => share > 0)
    const ready = given.reduce((sum, one) => sum + one.ready, 0)
    if (ready === 0) return false
    // Shares are whole numbers that add up, so a rounded one may differ by one for each of the others.
    return given.some((one) => Math.abs(one.share - (WHOLE * one.ready) / ready) > given.length)
  })
}

// The objects.

function derivedService(
  { metadata, spec }: ServiceImport,
  name: string,
  {
    families,
    policy,
  }: { readonly families: readonly IpFamily[] | undefined; readonly policy: ServiceShares['policy'] },
): Service {
  const isHeadless = spec.type === 'Headless'
  const asked = policy?.spec.sessionAffinity?.clientIP.timeoutSeconds
  const exported = spec.sessionAffinity === 'ClientIP'
  const timeoutSeconds = asked ?? (exported ? spec.sessionAffinityConfig?.clientIP?.timeoutSeconds : undefined)
  const written = spec.ports.map(portText).join()
  const isSticky = !isHeadless && (exported || asked !== undefined)
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, ...derivedMetadata(metadata), annotations: { [ANNOTATION_WRITTEN_PORTS]: written } },
    spec: {
      type: 'ClusterIP',
      ...(isHeadless ? { clusterIP: 'None' } : {}),
      ...(families === undefined ? {} : { ipFamilies: families, ipFamilyPolicy: familyPolicy(families) }),
      ports: spec.ports.map(({ name: port, protocol, port: number, appProtocol }) => ({
        ...(port === undefined ? {} : { name: port }),
        protocol,
        port: number,
        ...(appProtocol === undefined ? {} : { appProtocol }),
      })),
      sessionAffinity: isSticky ? 'ClientIP' : 'None',
      ...(isSticky && timeoutSeconds !== undefined ? { sessionAffinityConfig: { clientIP: { timeoutSeconds } } } : {}),
      ...(spec.internalTrafficPolicy === 'Local' ? { internalTrafficPolicy: 'Local' as const } : {}),
    },
  }
}

/**
 * A copy under the name of the Service, since the imported slice is what the standard says, and its readers must not
 * find it twice. Annotations stay behind: they are for readers of imports.
 */
function derivedSlice(slice: EndpointSlice, name: string, serviceImport: ServiceImport): EndpointSlice {
  const cluster = sourceOf(slice)
  const { labels, ...metadata } = derivedMetadata(serviceImport.metadata)
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: `${name}-${cluster}-${nameHash('derived', name, slice.metadata.name)}`,
      ...metadata,
      labels: {
        ...labels,
        [LABEL_K8S_SERVICE_NAME]: name,
        [LABEL_SOURCE_CLUSTER]: cluster,
        [LABEL_MANAGED_BY]: MANAGED_BY_SEALANE,
      },
    },
    addressType: slice.addressType,
    ...(slice.ports === undefined ? {} : { ports: slice.ports }),
    ...(slice.endpoints === undefined ? {} : { endpoints: slice.endpoints }),
  }
}

/** Kubernetes removes the objects with their owner, also where Sealane is no longer there. */
function derivedMetadata({ namespace = '', name, uid }: ServiceImport['metadata']) {
  const owner = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceImport', name, uid: uid ?? '' }
  return {
    namespace,
    labels: {
      [LABEL_DERIVED]: 'true',
      [LABEL_DERIVED_FROM]: name,
      [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE,
    },
    ...(uid === undefined ? {} : { ownerReferences: [owner] }),
  }
}

/** The import's families that cluster IPs have here. Undefined: the API server decides. */
function familiesOf({ spec }: ServiceImport, ours: readonly IpFamily[]): readonly IpFamily[] | undefined {
  if (ours.length === 0 || spec.ipFamilies === undefined) return undefined
  return spec.ipFamilies.filter((family) => ours.includes(family))
}

/**
 * An API server takes no second family without a policy, and gives a headless Service both without one. SingleStack
 * releases the second family of a Service that has two.
 */
function familyPolicy(families: readonly IpFamily[]): 'SingleStack' | 'RequireDualStack' {
  return families.length === 2 ? 'RequireDualStack' : 'SingleStack'
}

/** Whether an update in place can make one of the other: an API server keeps `clusterIP: None` and the first family. */
function isSameKind(before: Service, service: Service): boolean {
  const isHeadless = (one: Service): boolean => one.spec?.clusterIP === 'None'
  const first = (one: Service): IpFamily | undefined => one.spec?.ipFamilies?.[0]
  const sameFamily = first(before) === undefined || first(service) === undefined || first(before) === first(service)
  return isHeadless(before) === isHeadless(service) && sameFamily
}

/** Server-side apply cannot take a port away that another client added, and two ports may not have one name. */
function hasForeignPort({ metadata, spec }: Service): boolean {
  const written = new Set((metadata.annotations?.[ANNOTATION_WRITTEN_PORTS] ?? '').split(','))
  return (spec?.ports ?? []).some((port) => !written.has(portText(port)))
}

function portText({ protocol = 'TCP', port }: { readonly protocol?: string; readonly port: number }): string {
  return `${protocol}/${port}`
}

function isMirrored({ metadata }: ServiceImport): boolean {
  const isOurs = metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
  return isOurs && metadata.deletionTimestamp === undefined
}

/** Whether an annotation asks something of it, or its condition says something. A round leaves out all others. */
function isConcerned(serviceImport: ServiceImport, { namespaces }: DerivedWorld): boolean {
  const place = namespaces.get(serviceImport.metadata.namespace ?? '')
  if (place === undefined) return false
  const isSaid = findCondition(serviceImport.status?.conditions, CONDITION_DERIVED_SERVICE) !== undefined
  return isSaid || derivedName(serviceImport, place).t !== 'none'
}

/** The slices of these imports, by name. */
function importedSlices(
  slices: readonly EndpointSlice[],
  imports: ReadonlySet<ServiceKey>,
): Map<ServiceKey, EndpointSlice[]> {
  const found = new Map<ServiceKey, EndpointSlice[]>()
  for (const slice of slices) {
    const { namespace = '', labels = {} } = slice.metadata
    const service = labels[LABEL_SERVICE_NAME]
    const isOurs = labels[LABEL_MANAGED_BY] === MANAGED_BY_SEALANE && labels[LABEL_SOURCE_CLUSTER] !== undefined
    if (service === undefined || !isOurs || isDerived(slice)) continue
    const key = serviceKey(namespace, service)
    if (!imports.has(key)) continue
    const known = found.get(key)
    if (known === undefined) found.set(key, [slice])
    else known.push(slice)
  }
  for (const group of found.values()) group.sort((a, b) => compare(a.metadata.name, b.metadata.name))
  return found
}

/** Kubernetes copies labels of a Service to the slices that it makes, once a user gave the Service a selector. */
function isDerivedSlice(object: KubeObject): boolean {
  return isDerived(object) && object.metadata.labels?.[LABEL_MANAGED_BY] === MANAGED_BY_SEALANE
}

function sourceOf({ metadata }: EndpointSlice): string {
  return metadata.labels?.[LABEL_SOURCE_CLUSTER] ?? ''
}

function keyOf({ metadata }: KubeObject): ServiceKey {
  return serviceKey(metadata.namespace ?? '', metadata.name)
}

/** Older first. */
function byAge(a: ServiceImport, b: ServiceImport): number {
  const [one, other] = [a.metadata.creationTimestamp ?? '', b.metadata.creationTimestamp ?? '']
  return compare(one, other) || compare(keyOf(a), keyOf(b))
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
