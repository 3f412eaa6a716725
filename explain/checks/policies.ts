/**
 * Checks whether NetworkPolicies let pods of other clusters call exported services. The pods are known only by the
 * Service's selector. A policy that may select them counts for what it allows, but not for what it isolates.
 */
import { type Prefix, addressBits, parseAddress } from '../../model/addresses/addresses.ts'
import { CONDITION_READY, SYSTEM_NAMESPACE, isConditionTrue } from '../../model/model.ts'
import {
  DNS_POD_PORT,
  type FactObjects,
  type Finding,
  LABEL_COMPONENT,
  type Seen,
  type Subject,
  type World,
  named,
  seenAt,
  seenSubject,
  workloadName,
} from '../facts/facts.ts'
import {
  type Addresses,
  type Direction,
  type OtherRange,
  type PodPort,
  type PolicyRule,
  isAbout,
  letThrough,
  meets,
  opens,
  otherRanges,
  rangesText,
  rulesOf,
  selects,
  selectsAll,
} from '../packet-filter/packet-filter.ts'

interface ReadPolicy extends Seen<FactObjects['NetworkPolicy']> {
  readonly rules: readonly PolicyRule[]
}

interface Exported {
  readonly subject: Subject
  readonly service: FactObjects['Service']
  /** Policies that certainly select the service's pods (`closing`), and policies that do or may (`opening`). */
  readonly closing: readonly ReadPolicy[]
  readonly opening: readonly ReadPolicy[]
}

/** A port of the pods. Undefined for a Service without ports. */
interface OpenTo {
  readonly port: PodPort | undefined
  readonly lets: Addresses
}

export function callersKeptOut(world: World): readonly Finding[] {
  const ranges = otherRanges(world)
  const found = exportedServices(world).flatMap((one) => findingsOf(one, ranges))
  return [...found, ...together(found)]
}

/** The exported services. A Service without a selector is skipped, since it may lead to anything. */
function exportedServices({ objects }: World): readonly Exported[] {
  const services = new Map((objects.Service ?? []).map(({ object }) => [keyOf(object), object]))
  const byNamespace = new Map<string, ReadPolicy[]>()
  for (const policy of objects.NetworkPolicy ?? []) {
    const { namespace } = policy.object.metadata
    if (!isAbout(policy.object, 'Ingress')) continue
    const rules = rulesOf(policy.object, 'Ingress')
    const there = byNamespace.get(namespace) ?? []
    there.push({ ...policy, rules })
    byNamespace.set(namespace, there)
  }
  return (objects.ServiceExport ?? []).flatMap((one): readonly Exported[] => {
    const service = services.get(keyOf(one.object))
    const labels = service?.spec?.selector ?? {}
    if (service === undefined || Object.keys(labels).length === 0) return []
    if (!isConditionTrue(one.object.status?.conditions, CONDITION_READY)) return []
    const policies = (byNamespace.get(service.metadata.namespace) ?? []).map((policy) => {
      return { policy, selected: selects(policy.object.spec?.podSelector, { labels, isWhole: false }) }
    })
    const closing = policies.filter(({ selected }) => selected === 'yes').map(({ policy }) => policy)
    const opening = policies.filter(({ selected }) => selected !== 'no').map(({ policy }) => policy)
    return closing.length === 0 ? [] : [{ subject: seenSubject('ServiceExport', one), service, closing, opening }]
  })
}

function keyOf({ metadata }: { readonly metadata: { readonly namespace?: string; readonly name: string } }): string {
  return `${metadata.namespace ?? ''}/${metadata.name}`
}

/** A range counts as allowed if any of its addresses is: a narrower rule is considered intended. */
function findingsOf(exported: Exported, all: readonly OtherRange[]): readonly Finding[] {
  const { subject, service, closing, opening } = exported
  const ranges = all.filter(isOfFamily(service))
  const ports = openTo(
    service,
    opening.flatMap(({ rules }) => rules),
  )
  const shutRanges = ranges.filter(({ prefix }) => !ports.some(({ lets }) => meets(lets, prefix)))
  const shutPorts = ports.filter(({ lets }) => !ranges.some(({ prefix }) => meets(lets, prefix)))
  const [first] = closing
  if (first === undefined || shutRanges.length + (ranges.length === 0 ? 0 : shutPorts.length) === 0) return []
  const isShut = shutRanges.length === ranges.length
  // A policy that allows only some clusters or ports may be intended.
  const [from, at] = isShut || shutRanges.length > 0 ? [shutRanges, ports] : [ranges, shutPorts]
  const lets = isShut
    ? 'no policy allows ingress from another cluster'
    : `no policy allows ingress from ${rangesText(from)}${portsText(at)}`
  return [
    {
      reason: 'PolicyKeepsOut',
      severity: isShut ? 'degraded' : 'notice',
      subject,
      seen: `${policiesText(closing)} select${closing.length === 1 ? 's' : ''} its pods, but ${lets}`,
      ...seenAt(first),
      mend: `To make it reachable, allow ingress from ${rangesText(from)}${portsText(at)}, each as an ipBlock of an ingress rule.`,
      because: [{ reason: 'PolicyKeepsOut', subject: namespaceSubject(subject) }],
    },
  ]
}

function isOfFamily({ spec }: FactObjects['Service']): (range: OtherRange) => boolean {
  const families = spec?.ipFamilies ?? []
  return ({ prefix }) => families.length === 0 || families.includes(`IPv${prefix.family}`)
}

/** Policies match the ports of pods, not those of Services. */
function openTo({ spec }: FactObjects['Service'], rules: readonly PolicyRule[]): readonly OpenTo[] {
  const ports = (spec?.ports ?? []).map(({ protocol, port, targetPort }): PodPort => {
    return { protocol: protocol ?? 'TCP', port: targetPort ?? port }
  })
  if (ports.length === 0) return [{ port: undefined, lets: letThrough(rules) }]
  return ports.map((port) => ({ port, lets: letThrough(rules.filter((rule) => opens(rule, port))) }))
}

function portsText(ports: readonly OpenTo[]): string {
  const texts = ports.flatMap(({ port }) => (port === undefined ? [] : [`${port.protocol} ${port.port}`]))
  return texts.length === 0 ? '' : ` on ${named(texts)}`
}

function policiesText(policies: readonly ReadPolicy[]): string {
  const names = policies.map(({ object }) => keyOf(object))
  return `${names.length === 1 ? 'NetworkPolicy' : 'NetworkPolicies'} ${named(names)}`
}

function namespaceSubject({ namespace = '' }: Subject): Subject {
  return { kind: 'Namespace', name: namespace }
}

/** Joins the findings of a namespace: a policy that closes it is one problem, however many services it exports. */
function together(found: readonly Finding[]): readonly Finding[] {
  const namespaces = new Map<string, readonly Finding[]>()
  for (const one of found) {
    const { namespace = '' } = one.subject
    namespaces.set(namespace, [...(namespaces.get(namespace) ?? []), one])
  }
  return [...namespaces.values()].flatMap((all) => {
    const worst = all.find(({ severity }) => severity === 'degraded') ?? all[0]
    if (worst === undefined || all.length === 1) return []
    const names = named(all.map(({ subject }) => subject.name))
    const { because: _self, ...finding } = worst
    const seen = `${all.length} exported services are completely or partly unreachable from other clusters: ${names}. ${worst.subject.name}: ${worst.seen}`
    return [{ ...finding, subject: namespaceSubject(worst.subject), seen }]
  })
}

// Checks whether NetworkPolicies let pods call services of other clusters, in namespaces with imports.

type Import = Seen<FactObjects['ServiceImport']>

/**
 * Reports a namespace only if a policy isolates all its pods and no rule allows another cluster. Some CNIs check a call
 * before the clusterset IP is translated to a pod address, some after it, so a rule for either address is enough.
 */
export function callsKeptIn(world: World): readonly Finding[] {
  const { objects, self } = world
  const ranges = otherRanges(world)
  if (ranges.length === 0) return []
  const imports = new Map<string, Import[]>()
  for (const one of objects.ServiceImport ?? []) {
    const { namespace = '' } = one.object.metadata
    const isOfOthers = one.object.status?.clusters?.some(({ cluster }) => cluster !== self) === true
    if (isOfOthers) imports.set(namespace, [...(imports.get(namespace) ?? []), one])
  }
  return [...imports].flatMap(([namespace, all]): readonly Finding[] => {
    const policies = (objects.NetworkPolicy ?? []).filter(({ object }) => {
      return object.metadata.namespace === namespace && isAbout(object, 'Egress')
    })
    const closing = policies.find(({ object }) => selectsAll(object.spec?.podSelector))
    if (closing === undefined) return []
    const rules = policies.flatMap(({ object }) => rulesOf(object, 'Egress'))
    const isDns = all.some(({ object }) => object.spec.ports.some(({ port }) => port === DNS_PORT))
    const lets = letThrough(rules.filter((rule) => isDns || !isForNames(rule)))
    const wanted = [...ranges.map(({ prefix }) => prefix), ...all.flatMap(clustersetIps)]
    if (wanted.some((prefix) => meets(lets, prefix))) return []
    const services = named(all.map(({ object }) => object.metadata.name))
    return [
      {
        reason: 'PolicyKeepsIn',
        severity: 'notice',
        subject: seenSubject('NetworkPolicy', closing),
        seen: `it selects every pod of ${namespace}, but no policy there allows egress to another cluster: pods there cannot reach ${services}`,
        ...seenAt(closing),
        mend: `To let pods of ${namespace} reach them, allow egress to ${rangesText(ranges)}, each as an ipBlock of an egress rule.`,
      },
    ]
  })
}

const DNS_PORT = 53

/** Whether the rule only allows DNS queries, which are not calls of a service. */
function isForNames({ ports }: PolicyRule): boolean {
  return ports.length > 0 && ports.every(({ port, endPort }) => port === DNS_PORT && (endPort ?? port) === port)
}

function clustersetIps({ object: { spec } }: Import): readonly Prefix[] {
  return (spec.ips ?? []).flatMap((text) => {
    try {
      const address = parseAddress(text)
      return [{ ...address, length: addressBits(address.family) }]
    } catch {
      return []
    }
  })
}

type Policy = Seen<FactObjects['NetworkPolicy']>

const NEEDS = { agent: 'the API server, the broker and DNS', dns: 'the API server' } as const
const PARTS = ['agent', 'dns'] as const

/**
 * Checks whether NetworkPolicies keep Sealane's own parts from what they need. Reports only clear cases: no egress at
 * all is allowed, or no DNS query is. Gateways and route agents use the network of their nodes, where policies have no
 * effect.
 */
export function partsClosed(world: World): readonly Finding[] {
  return PARTS.flatMap((part) => [...shutIn(world, part), ...(part === 'dns' ? unasked(world) : [])])
}

function shutIn(world: World, part: (typeof PARTS)[number]): readonly Finding[] {
  const policies = policiesOf(world, part, 'Egress')
  const [first] = policies
  if (first === undefined || rulesIn(policies, 'Egress').length > 0) return []
  return [
    {
      reason: 'PolicyStopsPart',
      severity: 'degraded',
      subject: { kind: 'Deployment', namespace: SYSTEM_NAMESPACE, name: workloadName(part) },
      seen: `${partPoliciesText(policies)} allows no egress from its pods, but they need ${NEEDS[part]}`,
      ...seenAt(first),
      mend: `Allow egress from the pods of ${workloadName(part)} to ${NEEDS[part]}, or exclude them from the policy.`,
    },
  ]
}

function unasked(world: World): readonly Finding[] {
  const policies = policiesOf(world, 'dns', 'Ingress')
  const [first] = policies
  const rules = rulesIn(policies, 'Ingress')
  if (first === undefined || rules.some((rule) => opens(rule, { protocol: 'UDP', port: DNS_POD_PORT }))) return []
  return [
    {
      reason: 'PolicyStopsPart',
      severity: 'degraded',
      subject: { kind: 'Service', namespace: SYSTEM_NAMESPACE, name: workloadName('dns') },
      seen: `${partPoliciesText(policies)} allows no ingress on UDP ${DNS_POD_PORT}, where its pods receive DNS queries`,
      ...seenAt(first),
      mend: `Allow ingress on UDP and TCP ${DNS_POD_PORT}: \`sealane join\` installs a policy that does.`,
    },
  ]
}

/** The policies that select the pods of the part by their actual labels, each once. */
function policiesOf({ objects }: World, part: string, direction: Direction): readonly Policy[] {
  const pods = (objects.Pod ?? []).filter(({ object: { metadata, spec } }) => {
    return metadata.labels?.[LABEL_COMPONENT] === part && spec?.hostNetwork !== true
  })
  return (objects.NetworkPolicy ?? []).filter(({ object }) => {
    if (object.metadata.namespace !== SYSTEM_NAMESPACE || !isAbout(object, direction)) return false
    return pods.some(({ object: { metadata } }) => {
      return selects(object.spec?.podSelector, { labels: metadata.labels ?? {}, isWhole: true }) === 'yes'
    })
  })
}

function rulesIn(policies: readonly Policy[], direction: Direction): readonly PolicyRule[] {
  return policies.flatMap(({ object }) => rulesOf(object, direction))
}

function partPoliciesText(policies: readonly Policy[]): string {
  return `NetworkPolicy ${named(policies.map(({ object }) => object.metadata.name))}`
}
