/** What is kept of an answer: what nobody looks at makes a file of facts large, and no better. */
import type { Fact } from '../../explain/facts/fact.ts'
import type { FactKind, PartReport } from '../../explain/facts/shapes.ts'

/** As JSON has an object of any kind. */
export interface AnyObject {
  readonly metadata: object
  readonly [field: string]: unknown
}

/** Of these kinds, which others write, the fields of the spec that a check reads. */
const READ_FIELDS: Partial<Readonly<Record<FactKind, readonly string[]>>> = {
  NetworkPolicy: ['podSelector', 'policyTypes', 'ingress', 'egress'],
  Service: ['type', 'selector', 'ipFamilies', 'ports'],
}

/** Without who wrote which field; of endpoints no more than whether they are ready. */
export function slimmed(kind: FactKind, object: AnyObject): unknown {
  const { managedFields: _fields, ...metadata } = object.metadata as Readonly<Record<string, unknown>>
  const fields = READ_FIELDS[kind]
  if (fields !== undefined) {
    const { name, namespace } = metadata
    const spec = Object.entries(object['spec'] ?? {}).filter(([field]) => fields.includes(field))
    return { metadata: { name, namespace }, spec: Object.fromEntries(spec) }
  }
  if (kind !== 'EndpointSlice') return { ...object, metadata }
  const endpoints = Array.isArray(object['endpoints']) ? (object['endpoints'] as readonly unknown[]) : []
  const { name, namespace, labels } = metadata
  return { metadata: { name, namespace, labels }, endpoints: endpoints.map(readinessOf) }
}

function readinessOf(endpoint: unknown): unknown {
  if (typeof endpoint !== 'object' || endpoint === null) return endpoint
  const { conditions } = endpoint as { readonly conditions?: unknown }
  return conditions === undefined ? {} : { conditions }
}

/**
 * `/status` of a part. Whatever it is, it is checked where facts are read; its name is ours, and so is `part` where it
 * is known otherwise: one that was broken into does not speak for another.
 */
export function readReport(
  answer: unknown,
  { name, source, at, part }: { name: string; source: string; at: Date; part?: string | undefined },
): Fact {
  const said = (typeof answer === 'object' && answer !== null ? answer : {}) as PartReport
  const report = { ...said, name, ...(part === undefined ? {} : { part }) }
  return { t: 'report', source, at: at.toISOString(), report }
}
