/**
 * Words for structural schemas (OpenAPI v3 as apiextensions.k8s.io/v1 takes it), so that each schema reads as a list.
 */

export interface Rule {
  /** CEL. */
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

/** RFC 3339. */
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

/** All fields are required, but those named in `optional`. */
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

/** RFC 1123 label. */
export function dnsLabel(description: string): Schema {
  return text(description, { pattern: `^${LABEL}$`, minLength: 1, maxLength: 63 })
}

/** RFC 1123 subdomain. */
export function dnsSubdomain(description: string): Schema {
  return text(description, { pattern: `^${LABEL}(\\.${LABEL})*$`, minLength: 1, maxLength: 253 })
}

/** The network address of a range, without host bits. CEL library of Kubernetes 1.31. */
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

/** A field that keeps the value that it was made with. */
export function fixed(schema: Schema, what: string): Schema {
  const rule = { rule: 'self == oldSelf', message: `${what} cannot change` }
  return { ...schema, 'x-kubernetes-validations': [...(schema['x-kubernetes-validations'] ?? []), rule] }
}
