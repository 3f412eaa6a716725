/**
 * Who may call what, for `sealane show access` and `sealane access check`: decided by the functions that the broker, the
 * importers and the nodes use. Pure.
 */
import {
  AccessRules,
  type Exposure,
  type OfferCause,
  TO_NOBODY,
  callersOf,
  choosesNamespace,
  egressRules,
  exposureOf,
  isOfferedTo,
  mayCall,
  offeredClusters,
} from '../../../model/access/access.ts'
import type {
  AccessPolicy,
  Cluster,
  ClusterAccessPolicy,
  EndpointSlice,
  Membership,
  NamespaceChoice,
  Offer,
  ServiceExport,
  ServiceImport,
} from '../../../model/model.ts'
import {
  LABEL_K8S_SERVICE_NAME,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  type Service,
  findCondition,
  namespaceLists,
} from '../../../model/model.ts'
import {
  containsAddress,
  formatAddress,
  isAddress,
  parseAddress,
  parsePrefix,
} from '../../../model/addresses/addresses.ts'
import type { Caller, Called } from './parse-ends.ts'

/** The objects of this cluster that decide. */
export interface AccessObjects {
  readonly membership: Membership
  readonly clusters: readonly Cluster[]
  readonly exports: readonly ServiceExport[]
  readonly imports: readonly ServiceImport[]
  readonly policies: readonly AccessPolicy[]
  readonly clusterPolicies: readonly ClusterAccessPolicy[]
}

export type AccessCause = OfferCause | { readonly by: 'exposure'; readonly exposure: Exposure }

/** One exported service, as programs get it. */
export interface AccessRow {
  readonly namespace: string
  readonly name: string
  /** Ids of members, sorted. Absent: all members. */
  readonly clusters?: readonly string[]
  /** The rules, if policies made them. Absent: all namespaces of the members. */
  readonly rules?: NonNullable<Offer>
  readonly cause: AccessCause
  /** The members that import it, as they report it. Absent: none, or none is known. */
  readonly importedBy?: { readonly clusters: readonly string[]; readonly more?: number | undefined }
}

/** Decides about the services of one cluster. Built once for all of them. */
export class Access {
  readonly self: string
  readonly exposure: Exposure
  readonly #rules: AccessRules

  constructor({ membership, clusters, policies, clusterPolicies }: AccessObjects) {
    const { clusterId, accessDefault } = membership.spec
    this.self = clusterId
    this.exposure = exposureOf(membership)
    this.#rules = new AccessRules({
      self: clusterId,
      clustersetDefault: accessDefault,
      namespaces: namespaceLists(membership),
      ...{ clusterPolicies, policies, clusters },
    })
  }

  decide(namespace: string, name: string): { readonly offer: Offer; readonly cause: AccessCause } {
    if (this.exposure === 'nothing') return { offer: TO_NOBODY, cause: { by: 'exposure', exposure: 'nothing' } }
    return this.#rules.offerOf(namespace, name)
  }
}

/** All exported services, or those that `isWanted` chooses, by namespace and name. */
export function accessRows(
  objects: AccessObjects,
  isWanted: (namespace: string, name: string, offer: Offer) => boolean,
): readonly AccessRow[] {
  const access = new Access(objects)
  const own = objects.clusters.find(({ spec }) => spec.id === access.self)
  const importers = new Map(
    own?.status?.importedBy?.map(({ namespace, name, clusters, more }) => [
      `${namespace}/${name}`,
      { clusters, ...(more === undefined ? {} : { more }) },
    ]),
  )
  const rows = objects.exports.flatMap(({ metadata: { namespace = '', name } }) => {
    const { offer, cause } = access.decide(namespace, name)
    return isWanted(namespace, name, offer)
      ? [rowOf(namespace, name, { offer, cause, importedBy: importers.get(`${namespace}/${name}`) })]
      : []
  })
  const key = ({ namespace, name }: AccessRow): string => `${namespace}/${name}`
  return rows.sort((a, b) => (key(a) < key(b) ? -1 : 1))
}

function rowOf(
  namespace: string,
  name: string,
  {
    offer,
    cause,
    importedBy,
  }: Pick<AccessRow, 'cause'> & { readonly offer: Offer; readonly importedBy?: AccessRow['importedBy'] | undefined },
): AccessRow {
  const clusters = offeredClusters(offer)
  return {
    namespace,
    name,
    ...(clusters === undefined ? {} : { clusters }),
    ...(offer === undefined || cause.by !== 'policies' ? {} : { rules: offer }),
    cause,
    ...(importedBy === undefined ? {} : { importedBy }),
  }
}

const MOST_NAMES = 4

/** The members that import it; `-` if none is known. */
export function importersText({ importedBy }: AccessRow, most = MOST_NAMES): string {
  if (importedBy === undefined) return '-'
  const { clusters, more = 0 } = importedBy
  const named = clusters.slice(0, most)
  const rest = clusters.length - named.length + more
  return rest > 0 ? `${named.join(', ')} and ${rest} more` : named.join(', ')
}

/** `all members`, `nobody`, or ids; those of which only some namespaces may call have them: `paris/shop`. */
export function offeredText({ clusters, rules = [] }: AccessRow, most = MOST_NAMES): string {
  if (clusters === undefined) return 'all members'
  if (clusters.length === 0) return 'nobody'
  return listText(
    clusters.map((id) => {
      const parts = rules.filter((rule) => (rule.clusters as readonly string[]).includes(id))
      if (parts.some(({ namespaces }) => namespaces === undefined)) return id
      return `${id}/${namespacesText(parts)}`
    }),
    most,
  )
}

function namespacesText(parts: NonNullable<Offer>): string {
  const names = new Set(parts.flatMap(({ namespaces }) => namespaces?.names ?? []))
  const byLabels = parts.some(({ namespaces }) => (namespaces?.selectors ?? []).length > 0)
  const all = [...[...names].sort(), ...(byLabels ? ['by labels'] : [])]
  return all.length === 1 && !byLabels ? (all[0] ?? '') : `(${listText(all, MOST_NAMES)})`
}

function listText(all: readonly string[], most: number): string {
  const rest = all.length - most
  return rest > 0 ? `${all.slice(0, most).join(', ')} and ${rest} more` : all.join(', ')
}

/** The rule that decided. */
export function causeText(cause: AccessCause, most = MOST_NAMES): string {
  switch (cause.by) {
    case 'policies':
      return `AccessPolicy ${listText(cause.names, most)}`
    case 'cluster-default':
      return `default of this cluster: ${cause.default}`
    case 'clusterset-default':
      return `default of the clusterset: ${cause.default}`
    case 'exposure':
      return `exposure of this cluster: ${cause.exposure}`
    case 'namespace':
      return `its namespace ${cause.why}`
    case 'not-stated':
      return 'default of the clusterset: allow, until the broker states another'
  }
}

/** A service or pod of this cluster, and of it what a port belongs to. */
export interface CheckObjects extends AccessObjects {
  readonly services: readonly Service[]
  /** Slices of this cluster's own services and of imported ones. */
  readonly slices: readonly EndpointSlice[]
}

/** `wrong`: the question names something that this cluster does not know, or cannot decide about. */
export type CallAnswer =
  | { readonly answer: 'allowed' | 'refused'; readonly why: string; readonly notes: readonly string[] }
  | { readonly answer: 'wrong'; readonly why: string; readonly hint: string }

const OTHER_CLUSTER = 'the exporter decides: run this command in its cluster'

export function checkAccess(objects: CheckObjects, from: Caller, to: Called): CallAnswer {
  const { clusterId: self, clusterset } = objects.membership.spec
  if (from.cluster !== self && !objects.clusters.some(({ spec }) => spec.id === from.cluster)) {
    const hint = 'see: sealane show clusters'
    return { answer: 'wrong', why: `${from.cluster}: no member of clusterset ${clusterset} has this id`, hint }
  }
  return to.what === 'service' ? checkService(objects, from, to) : checkAddress(objects, from, to)
}

type CalledService = Extract<Called, { readonly what: 'service' }>
type CalledAddress = Extract<Called, { readonly what: 'address' }>

function checkService(objects: CheckObjects, from: Caller, to: CalledService): CallAnswer {
  const isIt = ({ metadata: { namespace, name } }: Named): boolean => namespace === to.namespace && name === to.name
  const exported = objects.exports.find(isIt)
  const { clusterId: self } = objects.membership.spec
  const title = `${to.name}.${to.namespace}`
  if (from.cluster === self) return checkOwnCall(objects, { title, isExported: exported !== undefined, isIt, from, to })
  if (exported === undefined) {
    const by = exportersOf(objects.imports.find(isIt), self)
    if (by.length > 0) {
      return { answer: 'wrong', why: `${title} is exported by ${listText(by, MOST_NAMES)}`, hint: OTHER_CLUSTER }
    }
    return { answer: 'wrong', why: `${title}: not exported by this cluster`, hint: 'see: sealane show access' }
  }
  const valid = findCondition(exported.status?.conditions, 'Valid')
  if (valid?.status === 'False') return refused(`the export of ${title} is not valid (${valid.reason})`)
  const ready = findCondition(exported.status?.conditions, 'Ready')
  if (ready?.status === 'False' && ready.reason === 'NamespaceNotAllowed')
    return refused(`the broker does not allow exports from namespace ${to.namespace} (${ready.reason})`)
  const port = portProblem(objects.services.find(isIt), to)
  if (port !== undefined) return refused(port)
  const access = new Access(objects)
  const answer = answerOf(access.decide(to.namespace, to.name), from, title)
  if (access.exposure !== 'pods' || answer.answer === 'allowed') return answer
  // It is not imported there, but its pods answer at their addresses.
  return allowed('all members may call all pods of this cluster, at their addresses', [`by the rules: ${answer.why}`])
}

interface Named {
  readonly metadata: { readonly namespace?: string | undefined; readonly name: string }
}

interface OwnCall {
  readonly title: string
  readonly isExported: boolean
  readonly isIt: (one: Named) => boolean
  readonly from: Caller
  readonly to: CalledService
}

const LABELS_ON_NODES = 'only the nodes of the caller know the labels of namespaces'

/** Why the nodes of this cluster refuse a call to this exporter. */
function callProblem(
  { clusterPolicies, clusters, slices }: CheckObjects,
  exporter: string,
  { from: { namespace: name }, to }: Pick<OwnCall, 'from' | 'to'>,
): string | undefined {
  const refuses = (choice: NamespaceChoice | undefined): boolean =>
    choice !== undefined && (name === undefined || !choosesNamespace(choice, { name }))
  const caller = name === undefined ? 'every namespace' : `namespace ${name}`
  if (refuses(egressRules(clusterPolicies, clusters)?.to(exporter)))
    return `${caller} may not call ${exporter} (spec.egress of the ClusterAccessPolicy)`
  const choices = slices.flatMap((slice) => {
    const { namespace, labels = {} } = slice.metadata
    const isIts = namespace === to.namespace && labels[LABEL_SERVICE_NAME] === to.name
    return isIts && labels[LABEL_SOURCE_CLUSTER] === exporter ? [callersOf(slice)] : []
  })
  return choices.length > 0 && choices.every(refuses) ? `${exporter} does not offer it to ${caller}` : undefined
}

/** A call from this cluster. What another cluster lets in is known there. */
function checkOwnCall(objects: CheckObjects, { title, isExported, isIt, from, to }: OwnCall): CallAnswer {
  const by = exportersOf(objects.imports.find(isIt), objects.membership.spec.clusterId)
  if (isExported) return allowed(`${title} is a service of this cluster, which is always included`)
  const problems = by.flatMap((id) => callProblem(objects, id, { from, to }) ?? [])
  if (by.length > problems.length) {
    return allowed(`this cluster imports ${title} from ${listText(by, MOST_NAMES)}`, [...problems, OTHER_CLUSTER])
  }
  if (problems[0] !== undefined) return refused(problems[0], [...problems.slice(1), LABELS_ON_NODES])
  return refused(`this cluster does not import ${title}: it is not exported, or not offered to this cluster`, [
    OTHER_CLUSTER,
  ])
}

function exportersOf(imported: ServiceImport | undefined, self: string): readonly string[] {
  const clusters = imported?.status?.clusters?.map(({ cluster }) => cluster) ?? []
  return clusters.filter((id) => id !== self).sort()
}

function portProblem(service: Service | undefined, { port, name, namespace }: CalledService): string | undefined {
  if (port === undefined) return undefined
  if (service === undefined) return `there is no Service ${name}.${namespace}`
  const ports = (service.spec?.ports ?? []).map((one) => one.port)
  if (ports.includes(port)) return undefined
  return `port ${port} is no port of ${name}.${namespace}, which has ${listText(ports.map(String), 10) || 'none'}`
}

function answerOf(
  { offer, cause }: { readonly offer: Offer; readonly cause: AccessCause },
  from: Caller,
  title: string,
): CallAnswer {
  const rule = causeText(cause)
  if (!isOfferedTo(offer, from.cluster)) return refused(`${title} is not offered to ${from.cluster} (${rule})`)
  const row = rowOf('', '', { offer, cause })
  const rules = (row.rules ?? []).filter(({ clusters }) => (clusters as readonly string[]).includes(from.cluster))
  const isWhole = rules.length === 0 || rules.some(({ namespaces }) => namespaces === undefined)
  if (isWhole) return allowed(`${title} is offered to ${from.cluster} (${rule})`)
  const some = `only to some namespaces of ${from.cluster}: ${namespacesText(rules)}`
  if (from.namespace === undefined) return refused(`${title} is offered ${some} (${rule})`)
  if (mayCall(offer, { cluster: from.cluster, namespace: { name: from.namespace } }))
    return allowed(`${title} is offered to namespace ${from.namespace} of ${from.cluster} (${rule})`)
  const isByLabels = rules.some(({ namespaces }) => (namespaces?.selectors ?? []).length > 0)
  const notes = isByLabels ? [`the labels of its namespaces are known in ${from.cluster}, whose nodes decide`] : []
  return refused(`${title} is offered ${some} (${rule})`, notes)
}

function checkAddress(objects: CheckObjects, from: Caller, { address, port }: CalledAddress): CallAnswer {
  const { clusterId: self } = objects.membership.spec
  const text = formatAddress(address)
  const own = objects.clusters.find(({ spec }) => spec.id === self)?.spec
  const isIn = (cidrs: readonly string[] = []): boolean =>
    cidrs.some((cidr) => containsAddress(parsePrefix(cidr), address))
  if (!isIn(own?.podCIDRs)) {
    const holder = objects.clusters.find(
      ({ spec }) => spec.id !== self && isIn([...spec.podCIDRs, ...spec.globalCIDRs]),
    )
    if (holder !== undefined)
      return { answer: 'wrong', why: `${text} is an address of ${holder.spec.id}`, hint: OTHER_CLUSTER }
    const hint = isIn(own?.globalCIDRs) ? 'it is a global address: name the address of the pod itself' : NO_POD
    return { answer: 'wrong', why: `${text}: not in the pod networks of this cluster`, hint }
  }
  if (from.cluster === self) return allowed('both are in this cluster, within which Sealane limits nothing')
  const access = new Access(objects)
  const rule = causeText({ by: 'exposure', exposure: access.exposure })
  if (access.exposure === 'pods') return allowed(`all members may call all pods (${rule})`)
  if (access.exposure === 'nothing') return refused(`no member may call pods of this cluster (${rule})`)
  const answers = servicesAt(objects, text, port).map(({ namespace, name }) =>
    answerOf(access.decide(namespace, name), from, `${name}.${namespace}`),
  )
  return (
    answers.find(({ answer }) => answer === 'allowed') ??
    answers[0] ??
    refused(`port ${port} of ${text} belongs to no exported service (${rule})`)
  )
}

const NO_POD = 'other members never reach addresses that belong to no pod'

/** The exported services with this backend. */
function servicesAt(
  { slices, exports: exported }: CheckObjects,
  text: string,
  port: number,
): readonly { readonly namespace: string; readonly name: string }[] {
  const keys = new Set(exported.map(({ metadata: { namespace = '', name } }) => `${namespace}/${name}`))
  const found = new Map<string, { readonly namespace: string; readonly name: string }>()
  for (const { metadata, endpoints, ports } of slices) {
    const { namespace = '', labels = {} } = metadata
    const name = labels[LABEL_K8S_SERVICE_NAME]
    if (name === undefined || LABEL_SOURCE_CLUSTER in labels || !keys.has(`${namespace}/${name}`)) continue
    const isThere = endpoints?.some(({ addresses }) => addresses.some((one) => isSameAddress(one, text))) === true
    if (isThere && ports?.some((one) => one.port === port) === true)
      found.set(`${namespace}/${name}`, { namespace, name })
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, service]) => service)
}

function isSameAddress(one: string, text: string): boolean {
  return one === text || (isAddress(one) && formatAddress(parseAddress(one)) === text)
}

function allowed(why: string, notes: readonly string[] = []): CallAnswer {
  return { answer: 'allowed', why, notes }
}

function refused(why: string, notes: readonly string[] = []): CallAnswer {
  return { answer: 'refused', why, notes }
}
