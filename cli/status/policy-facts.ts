/**
 * What of a cluster's NetworkPolicies counts: those of namespaces where something is exported or imported, and our own.
 * Which pods an exported Service has is asked only where a policy may be about them.
 */
import type { Fact, ObjectsFact } from '../../explain/facts/fact.ts'
import type { DynamicObject } from '../../kubeapi/kube/dynamic-client.ts'
import { SYSTEM_NAMESPACE } from '../../model/spec-constants.ts'

/** More lists than this are one list of all Services. */
const MOST_NAMESPACES = 16

/** What was asked for before. */
export interface PolicyInputs {
  readonly policies: readonly Fact[]
  readonly exports: readonly Fact[]
  readonly imports: readonly Fact[]
}

/** Lists Services: of one namespace, or of all. */
export type ListServices = (namespace: string | undefined) => Promise<readonly Fact[]>

/** Facts that were not answered stay as they are. */
export async function policyFacts(inputs: PolicyInputs, services: ListServices): Promise<readonly Fact[]> {
  const [exported, imported] = [namesIn(inputs.exports), namesIn(inputs.imports)]
  const spaces = (names: ReadonlySet<string>): string[] => [...names].map((name) => name.slice(0, name.indexOf('/')))
  const relevant = new Set([SYSTEM_NAMESPACE, ...spaces(exported), ...spaces(imported)])
  const policies = inputs.policies.map((fact) => kept(fact, (item) => relevant.has(item.metadata.namespace ?? '')))
  const closed = new Set(spaces(namesIn(policies)))
  const asked = [...new Set(spaces(exported))].filter((namespace) => closed.has(namespace)).sort()
  const places = asked.length > MOST_NAMESPACES ? [undefined] : asked
  const found = (await Promise.all(places.map(services))).flat()
  return [...policies, ...found.map((fact) => kept(fact, (item) => exported.has(nameOf(item))))]
}

function kept(fact: Fact, isKept: (item: Named) => boolean): Fact {
  return isObjects(fact) ? { ...fact, items: (fact.items as readonly Named[]).filter(isKept) } : fact
}

/** `shop/web` */
function namesIn(facts: readonly Fact[]): ReadonlySet<string> {
  return new Set(facts.filter(isObjects).flatMap(({ items }) => (items as readonly Named[]).map(nameOf)))
}

type Named = Pick<DynamicObject, 'metadata'>

function nameOf({ metadata: { namespace = '', name } }: Named): string {
  return `${namespace}/${name}`
}

function isObjects(fact: Fact): fact is ObjectsFact {
  return fact.t === 'objects'
}
