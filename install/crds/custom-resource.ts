/** Defines CustomResourceDefinitions as data, with the fields that Sealane writes or reads. */

/**
 * Functions for structural schemas (OpenAPI v3 as apiextensions.k8s.io/v1 accepts it) that make a schema read as a
 * list.
 */

interface Rule {
  /** A CEL expression. */
  readonly rule: string
  readonly message: string
}

export interface Schema {
  readonly type?: 'object' | 'array' | 'string' | 'integer' | 'number' | 'boolean'
  readonly description?: string
  readonly properties?: Readonly<Record<string, Schema>>
  readonly additionalProperties?: Schema
  readonly required?: readonly string[]
  readonly items?: Schema
  readonly enum?: readonly string[]
  readonly pattern?: string
  readonly format?: string
  readonly minimum?: number
  readonly maximum?: number
  readonly minLength?: number
  readonly maxLength?: number
  readonly minItems?: number
  readonly maxItems?: number
  readonly maxProperties?: number
  readonly 'x-kubernetes-list-type'?: 'atomic' | 'map' | 'set'
  readonly 'x-kubernetes-list-map-keys'?: readonly string[]
  readonly 'x-kubernetes-validations'?: readonly Rule[]
}

type Extra = Omit<Schema, 'type' | 'description'>

export function text(description: string, extra: Extra = {}): Schema {
  return { description, type: 'string', ...extra }
}

export function integer(description: string, minimum: number, maximum: number): Schema {
  return { description, type: 'integer', format: maximum > 0x7fffffff ? 'int64' : 'int32', minimum, maximum }
}

export function number(description: string, extra: Extra = {}): Schema {
  return { description, type: 'number', ...extra }
}

/** An RFC 3339 time. */
export function time(description: string): Schema {
  return { description, type: 'string', format: 'date-time' }
}

export function flag(description: string): Schema {
  return { description, type: 'boolean' }
}

/** A list that is replaced as a whole. */
export function list(description: string, items: Schema, maxItems: number, extra: Extra = {}): Schema {
  return { description, type: 'array', items, maxItems, 'x-kubernetes-list-type': 'atomic', ...extra }
}

/** An object. All fields are required except those in `optional`. */
export function map(
  description: string,
  properties: Readonly<Record<string, Schema>>,
  optional: readonly string[] = [],
  extra: Extra = {},
): Schema {
  const required = Object.keys(properties).filter((name) => !optional.includes(name))
  return { description, type: 'object', properties, ...(required.length > 0 ? { required } : {}), ...extra }
}

export function textMap(description: string, extra: Extra = {}): Schema {
  return { description, type: 'object', additionalProperties: { type: 'string' }, ...extra }
}

const LABEL = '[a-z0-9]([-a-z0-9]*[a-z0-9])?'

/** An RFC 1123 label. */
export function dnsLabel(description: string): Schema {
  return text(description, { pattern: `^${LABEL}$`, minLength: 1, maxLength: 63 })
}

/** An RFC 1123 subdomain. */
export function dnsSubdomain(description: string): Schema {
  return text(description, { pattern: `^${LABEL}(\\.${LABEL})*$`, minLength: 1, maxLength: 253 })
}

/** The network address of a range, without host bits. Uses the CEL library of Kubernetes 1.31. */
export function cidr(description: string): Schema {
  return text(description, {
    maxLength: 43,
    'x-kubernetes-validations': [
      {
        rule: 'isCIDR(self) && cidr(self) == cidr(self).masked()',
        message: 'expected a range such as 10.42.0.0/16, without host bits',
      },
    ],
  })
}

export function ipAddress(description: string): Schema {
  return text(description, {
    maxLength: 45,
    'x-kubernetes-validations': [{ rule: 'isIP(self)', message: 'expected an address such as 192.0.2.10' }],
  })
}

/** A field that cannot change after it is set. */
export function fixed(schema: Schema, what: string): Schema {
  const rule = { rule: 'self == oldSelf', message: `${what} cannot change` }
  return { ...schema, 'x-kubernetes-validations': [...(schema['x-kubernetes-validations'] ?? []), rule] }
}

export interface PrinterColumn {
  readonly name: string
  readonly type: 'string' | 'integer' | 'date' | 'number' | 'boolean'
  readonly jsonPath: string
  readonly description?: string
  /** Columns above 0 are shown only with -o wide. */
  readonly priority?: number
}

export interface CrdVersion {
  readonly name: string
  readonly served: boolean
  readonly storage: boolean
  readonly schema?: { readonly openAPIV3Schema?: Schema }
  readonly subresources?: { readonly status?: Readonly<Record<string, never>> }
  readonly additionalPrinterColumns?: readonly PrinterColumn[]
}

export interface CustomResourceDefinition {
  readonly apiVersion: 'apiextensions.k8s.io/v1'
  readonly kind: 'CustomResourceDefinition'
  readonly metadata: {
    readonly name: string
    readonly labels?: Readonly<Record<string, string>>
    readonly annotations?: Readonly<Record<string, string>>
    readonly deletionTimestamp?: string
  }
  readonly spec: {
    readonly group: string
    readonly scope: 'Cluster' | 'Namespaced'
    readonly names: {
      readonly kind: string
      readonly plural: string
      readonly singular?: string
      readonly listKind?: string
      readonly shortNames?: readonly string[]
      readonly categories?: readonly string[]
    }
    readonly versions: readonly CrdVersion[]
    readonly conversion?: { readonly strategy: string; readonly webhook?: unknown }
  }
  readonly status?: { readonly storedVersions?: readonly string[]; readonly conditions?: readonly unknown[] }
}

export const AGE: PrinterColumn = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' }

/** The root of a schema: the fields of every object, and the object's own fields. */
export function objectSchema(
  description: string,
  fields: Readonly<Record<string, Schema>>,
  required: readonly string[],
  extra: Omit<Schema, 'type' | 'properties' | 'required'> = {},
): Schema {
  return {
    description,
    type: 'object',
    properties: {
      apiVersion: { description: 'Group and version of this form of the object.', type: 'string' },
      kind: { description: 'Which kind of object this is.', type: 'string' },
      metadata: { type: 'object' },
      ...fields,
    },
    ...(required.length > 0 ? { required } : {}),
    ...extra,
  }
}

const REASON = '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'
const TYPE =
  '^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$'

/** metav1.Condition with the validation of Kubernetes' own types, as a map list keyed by type. */
export const CONDITIONS: Schema = {
  description: 'What holds now, one entry per type.',
  type: 'array',
  items: {
    description: 'One fact about this object, who found it and since when.',
    type: 'object',
    properties: {
      lastTransitionTime: { description: 'When status last changed.', type: 'string', format: 'date-time' },
      message: { description: 'The same for people; may be empty.', type: 'string', maxLength: 32_768 },
      observedGeneration: {
        description: 'The metadata.generation that was looked at. Older than the present one: not judged yet.',
        type: 'integer',
        format: 'int64',
        minimum: 0,
      },
      reason: {
        description: 'Why, in CamelCase; several are joined with commas.',
        type: 'string',
        minLength: 1,
        maxLength: 1024,
        pattern: REASON,
      },
      status: { description: 'Whether it holds.', type: 'string', enum: ['True', 'False', 'Unknown'] },
      type: { description: 'Which fact this is, in CamelCase.', type: 'string', maxLength: 316, pattern: TYPE },
    },
    required: ['lastTransitionTime', 'message', 'reason', 'status', 'type'],
  },
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['type'],
}
