/**
 * Whether NetworkPolicies let pods of other clusters call exported services. Which pods a policy is about is known as far
 * as the Service's selector says it: where it may be about them, what it lets in counts, and what it keeps out does not.
 */
import { CONDITION_READY, isConditionTrue } from '../../../model/conditions.ts'
import type { FactObjects } from '../../facts/fact.ts'
import type { Seen } from '../../facts/read-facts.ts'
import type { Finding, Subject } from '../../finding.ts'
import {
  type Addresses,
  type PodPort,
  type PolicyRule,
  isAbout,
  letThrough,
  meets,
  opens,
  rulesOf,
} from '../../policies/let-through.ts'
import { type OtherRange, otherRanges, rangesText } from '../../policies/other-ranges.ts'
import { selects } from '../../policies/selects.ts'
import { type World, named, seenAt, seenSubject } from '../../world.ts'

interface ReadPolicy extends Seen<FactObjects['NetworkPolicy']> {
  readonly rules: readonly PolicyRule[]
}

interface Exported {
  readonly subject: Subject
  readonly service: FactObjects['Service']
  /** Those that are surely about its pods, and those that are or may be. */
  readonly closing: readonly ReadPolicy[]
  readonly opening: readonly ReadPolicy[]
}

/** A port of the pods; undefined: of a Service that names none. */
interface OpenTo {
  readonly port: PodPort | undefined
  readonly lets: Addresses
}

export function callersKeptOut(world: World): readonly Finding[] {
  const ranges = otherRanges(world)
  const found = exportedServices(world).flatMap((one) => findingsOf(one, ranges))
  return [...found, ...together(found)]
}

/** Of those that are exported. A Service without a selector may lead to anything. */
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

/** A range of which some address is let in is let in: who narrows it further means to. */
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
  // What is shut for some, or at some ports, may be meant so.
  const [from, at] = isShut || shutRanges.length > 0 ? [shutRanges, ports] : [ranges, shutPorts]
  const lets = isShut
    ? 'no policy lets in any address of another cluster'
    : `no policy lets in ${rangesText(from)}${portsText(at)}`
  return [
    {
      reason: 'PolicyKeepsOut',
      severity: isShut ? 'degraded' : 'notice',
      subject,
      seen: `${policiesText(closing)} select${closing.length === 1 ? 's' : ''} its pods, and ${lets}`,
      ...seenAt(first),
      mend: `Let in ${rangesText(from)}${portsText(at)}, each as an ipBlock of an ingress rule, if they shall call it.`,
      because: [{ reason: 'PolicyKeepsOut', subject: namespaceSubject(subject) }],
    },
  ]
}

function isOfFamily({ spec }: FactObjects['Service']): (range: OtherRange) => boolean {
  const families = spec?.ipFamilies ?? []
  return ({ prefix }) => families.length === 0 || families.includes(`IPv${prefix.family}`)
}

/** Policies go by the ports of pods, not of Services. */
function openTo({ spec }: FactObjects['Service'], rules: readonly PolicyRule[]): readonly OpenTo[] {
  const ports = (spec?.ports ?? []).map(({ protocol = 'TCP', port, targetPort }): PodPort => {
    return { protocol, port: targetPort ?? port }
  })
  if (ports.length === 0) return [{ port: undefined, lets: letThrough(rules) }]
  return ports.map((port) => ({ port, lets: letThrough(rules.filter((rule) => opens(rule, port))) }))
}

function portsText(ports: readonly OpenTo[]): string {
  const texts = ports.flatMap(({ port }) => (port === undefined ? [] : [`${port.protocol} ${port.port}`]))
  return texts.length === 0 ? '' : ` at ${named(texts)}`
}

function policiesText(policies: readonly ReadPolicy[]): string {
  const names = policies.map(({ object }) => keyOf(object))
  return `${names.length === 1 ? 'NetworkPolicy' : 'NetworkPolicies'} ${named(names)}`
}

function namespaceSubject({ namespace = '' }: Subject): Subject {
  return { kind: 'Namespace', name: namespace }
}

/** A policy that closes a namespace is one problem, however many services are exported from there. */
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
    const seen = `${all.length} exported services are closed to other clusters, wholly or in part: ${names}. ${worst.subject.name}: ${worst.seen}`
    return [{ ...finding, subject: namespaceSubject(worst.subject), seen }]
  })
}
