/** What the API server checks of policies and topologies: all is bounded, so that the rules of CEL have a cost. */
import t from 'tap'
import { OWN_CRDS } from '../../../install/crds/all-crds.ts'
import type { Schema } from '../../../model/kinds/fields.ts'

const POLICIES = ['AccessPolicy', 'ClusterAccessPolicy', 'TrafficPolicy', 'ClusterTrafficPolicy', 'Topology']
/** apiextensions-apiserver pkg/apiserver/schema/cel (StaticEstimatedCostLimit): the most cost of one rule of a CRD. */
const MOST_COST = 10_000_000
/** More than any of our rules costs for one entry: a search in a list costs one unit for each (cel-go checker/cost.go). */
const COST_OF_ENTRY = 8

/** The fields below a schema, with how often each is there at most. */
function* fieldsOf(schema: Schema, path: string, times: number): Generator<readonly [string, Schema, number]> {
  yield [path, schema, times]
  for (const [name, field] of Object.entries(schema.properties ?? {})) yield* fieldsOf(field, `${path}.${name}`, times)
  const { items, additionalProperties: values, maxItems = Infinity, maxProperties = Infinity } = schema
  if (items !== undefined) yield* fieldsOf(items, `${path}[]`, times * maxItems)
  if (values !== undefined) yield* fieldsOf(values, `${path}{}`, times * maxProperties)
}

function isBounded({ type, enum: choices, maxLength, maxItems, additionalProperties, maxProperties }: Schema): boolean {
  if (type === 'string') return choices !== undefined || maxLength !== undefined
  if (type === 'array') return maxItems !== undefined
  return additionalProperties === undefined || maxProperties !== undefined
}

/** How many entries a rule looks at: those of the lists that it walks through, and those in which it searches each. */
function entriesOf({ properties = {} }: Schema, rule: string): number {
  const sizes = [...rule.matchAll(/self\.(\w+)\.all\(|in self\.(\w+)/g)].map(([, walked, searched]) => {
    const { maxItems, maxProperties, additionalProperties } = properties[walked ?? searched ?? ''] ?? {}
    // A map is not searched entry by entry.
    return walked === undefined && additionalProperties !== undefined ? 1 : (maxItems ?? maxProperties ?? Infinity)
  })
  return sizes.reduce((all, size) => all * size, 1)
}

for (const { spec } of OWN_CRDS.filter((crd) => POLICIES.includes(crd.spec.names.kind))) {
  t.test(`${spec.names.kind}: limits and the cost of rules`, async (t) => {
    const whole = spec.versions[0]?.schema?.openAPIV3Schema as Schema
    const stated = [...fieldsOf(whole.properties?.['spec'] ?? {}, 'spec', 1)]
    t.same(
      stated.filter(([, field]) => !isBounded(field)).map(([path]) => path),
      [],
    )
    const rules = [...fieldsOf(whole, '', 1)].flatMap(([path, field, times]) =>
      (field['x-kubernetes-validations'] ?? []).map(
        ({ rule }) => [path, rule, times * entriesOf(field, rule)] as const,
      ),
    )
    const selectors = rules.filter(([path]) => path.endsWith('matchExpressions[]'))
    t.ok(selectors.length > 0, 'a requirement of no meaning is refused')
    for (const [path, rule, entries] of rules) t.ok(entries * COST_OF_ENTRY < MOST_COST, `${path}: ${rule}: ${entries}`)
  })
}
