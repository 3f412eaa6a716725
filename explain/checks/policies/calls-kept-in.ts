/** Whether NetworkPolicies let pods call services of other clusters, in namespaces that import some. */
import { type Prefix, addressBits, parseAddress } from '../../../model/addresses/ip.ts'
import type { FactObjects } from '../../facts/fact.ts'
import type { Seen } from '../../facts/read-facts.ts'
import type { Finding } from '../../finding.ts'
import { type PolicyRule, isAbout, letThrough, meets, rulesOf } from '../../policies/let-through.ts'
import { otherRanges, rangesText } from '../../policies/other-ranges.ts'
import { selectsAll } from '../../policies/selects.ts'
import { type World, named, seenAt, seenSubject } from '../../world.ts'

type Import = Seen<FactObjects['ServiceImport']>

/**
 * Said where every pod of the namespace is kept in: where one policy lets out to another cluster, who wrote it knows of
 * them. Some pod networks look at a call before the clusterset IP becomes a pod, some after that: either will do.
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
        seen: `it selects every pod of ${namespace}, and no policy there lets out to another cluster: ${services} cannot be called there`,
        ...seenAt(closing),
        mend: `Let out to ${rangesText(ranges)}, each as an ipBlock of an egress rule, if pods of ${namespace} shall call them.`,
      },
    ]
  })
}

const DNS_PORT = 53

/** To ask for names is not to call. */
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
