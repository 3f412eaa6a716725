/**
 * Fields of a kind's description. A field is one zod type that carries what the CRD says of it, and its test is computed
 * from that, so that the grammar of a field and its CRD cannot differ. From a description follow the type (Described),
 * the CRD (crd-schema.ts), and the form for readers of other releases (loose.ts).
 *
 * The message of a check is what was expected; complaintOf() adds the path of the field.
 */
import { z } from 'zod'
import { LABEL_PATTERN, MAX_LABEL, MAX_NAME, MAX_PORT, isAddress, isDnsSubdomain, isPrefix } from '../values/values.ts'

export interface Rule {
  /** A CEL expression. */
  readonly rule: string
  readonly message: string
}

/** A structural schema: OpenAPI v3 as apiextensions.k8s.io/v1 accepts it. */
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

/** What the CRD says beside type, description, fields and items. */
export type Limits = Omit<Schema, 'type' | 'description' | 'properties' | 'required' | 'items' | 'additionalProperties'>

/** What is noted at a field. */
export interface FieldNote {
  /** The field in the CRD, without its fields or items: these follow from the zod type. */
  readonly schema: Schema
  /** Whether it is the description of a whole object. */
  readonly isObject?: boolean
  /** Whether readers depend on the grammar and the limits: loose() keeps them. */
  readonly relied?: boolean
  /** Whether it names something: a reader takes no empty text. */
  readonly isName?: boolean
  /** The field as the CRD, which belongs to others, has it. */
  readonly shared?: z.ZodType
}

const NOTES = new WeakMap<z.core.$ZodType, FieldNote>()

/** Returns the note at a field of a description; undefined for other types. */
export function noteOf(type: z.core.$ZodType): FieldNote | undefined {
  return NOTES.get(type)
}

function noted<T extends z.ZodType>(type: T, note: FieldNote): T {
  NOTES.set(type, note)
  return type
}

/** A field whose check changes no value. */
export type Field<T> = z.ZodType<T, T>

/**
 * The type of what a description describes, readonly at every depth. An optional field is absent, never undefined; so is
 * one with a default, which only the strict form fills in.
 */
export type Described<T extends z.ZodType> = DeepReadonly<z.input<T>>

type DeepReadonly<T> = T extends readonly (infer Item)[]
  ? readonly DeepReadonly<Item>[]
  : T extends object
    ? { readonly [Field in keyof T]: DeepReadonly<Exclude<T[Field], undefined>> }
    : T

/** Without a description there is none in the CRD: for documents that have no CRD. */
const said = (description: string): Pick<Schema, 'description'> => (description === '' ? {} : { description })

function textField<T extends string>(
  schema: Schema,
  expected: string,
  test: (value: string) => boolean = () => true,
): Field<T> {
  const fits = textTest(schema)
  const type = z
    .string({ error: expected })
    .refine((value) => fits(value) && test(value), { error: expected, abort: true })
  return noted(type as unknown as Field<T>, { schema, isName: schema.pattern !== undefined })
}

/** Lengths count characters as the API server does, not UTF-16 units. */
function textTest({ pattern, minLength = 0, maxLength = Infinity }: Schema): (value: string) => boolean {
  const grammar = pattern === undefined ? undefined : new RegExp(pattern)
  return (value) => {
    const isSurelyShort = value.length <= maxLength && value.length >= 2 * minLength
    const length = isSurelyShort ? value.length : Array.from(value).length
    return length >= minLength && length <= maxLength && (grammar === undefined || grammar.test(value))
  }
}

/** A text that passes a test, for which no CRD has a word. Its message is what was expected. */
export function textThat(expected: string, test: (value: string) => boolean): Field<string> {
  return textField({ type: 'string' }, expected, test)
}

/** A text. T names the values that this release writes where the CRD has no list of them. */
export function text<T extends string = string>(description = '', limits: Limits = {}): Field<T> {
  return textField<T>({ ...said(description), type: 'string', ...limits }, 'text')
}

export function choice<const T extends string>(choices: readonly T[], description = ''): Field<T> {
  const type = z.enum(choices as [T, ...T[]], { error: `one of ${choices.join(', ')}` })
  return noted(type as unknown as Field<T>, { schema: { ...said(description), type: 'string', enum: choices } })
}

/** A whole number that JavaScript keeps exactly. */
export function integer(minimum: number, maximum: number, description = ''): Field<number> {
  const format = maximum > 0x7fffffff ? 'int64' : 'int32'
  const schema = { ...said(description), type: 'integer', format, minimum, maximum } as const
  return numberField(schema, `${minimum} to ${maximum}`)
}

/** The number of a port, of any protocol. */
export function portNumber(description = ''): Field<number> {
  return integer(1, MAX_PORT, description)
}

/** A whole number without limits in the CRD. */
export function anyInteger(format: 'int32' | 'int64', description: string, minimum?: number): Field<number> {
  const schema = {
    ...said(description),
    type: 'integer',
    format,
    ...(minimum === undefined ? {} : { minimum }),
  } as const
  return numberField(schema, 'a whole number')
}

export function number(description: string, limits: Limits = {}): Field<number> {
  return numberField({ ...said(description), type: 'number', ...limits }, 'a number')
}

function numberField(schema: Schema, expected: string): Field<number> {
  const { format, minimum = -Infinity, maximum = Infinity } = schema
  const least = format === 'int32' ? Math.max(minimum, -0x80000000) : minimum
  const most = format === 'int32' ? Math.min(maximum, 0x7fffffff) : maximum
  const type = z.number({ error: expected }).refine(
    (value) => {
      return (schema.type === 'number' || Number.isSafeInteger(value)) && value >= least && value <= most
    },
    { error: expected, abort: true },
  )
  return noted(type, { schema })
}

export function flag(description = ''): Field<boolean> {
  return noted(z.boolean({ error: 'true or false' }), { schema: { ...said(description), type: 'boolean' } })
}

/** A list that is replaced as a whole, of at most `maxItems`. */
export function list<T extends z.ZodType>(item: T, description = '', maxItems?: number): z.ZodArray<T> {
  const limits = maxItems === undefined ? {} : { maxItems, 'x-kubernetes-list-type': 'atomic' as const }
  return listOf(item, { ...said(description), ...limits })
}

/** A list with any limits, in the order in which the CRD has them. */
export function listOf<T extends z.ZodType>(item: T, limits: Omit<Schema, 'type' | 'items'>): z.ZodArray<T> {
  const { description, ...others } = limits
  const { maxItems } = limits
  const type = z.array(item, { error: 'a list' })
  const few = maxItems === undefined ? type : type.max(maxItems, { error: `at most ${maxItems} entries` })
  return noted(few, { schema: { ...said(description ?? ''), type: 'array', ...others } })
}

/** Known fields; others are dropped. A field is required unless it is optional(). */
export function map<T extends z.ZodRawShape>(shape: T, description = '', limits: Limits = {}): z.ZodObject<T> {
  return noted(z.object(shape, { error: 'a map' }), { schema: { ...said(description), type: 'object', ...limits } })
}

/** A whole object: its own fields beside apiVersion, kind and metadata. */
export function object<T extends z.ZodRawShape>(description: string, shape: T, limits: Limits = {}): z.ZodObject<T> {
  const type = z.object(shape, { error: 'a map' })
  return noted(type, { schema: { description, type: 'object', ...limits }, isObject: true })
}

/** `value` has the limits of the values. */
export function textMap(
  description = '',
  limits: Limits = {},
  value: Limits = {},
): z.ZodRecord<z.ZodString, Field<string>> {
  const { maxProperties = Infinity } = limits
  const type = z.record(z.string(), text('', value), { error: 'a map' })
  const few = type.refine((value) => Object.keys(value).length <= maxProperties, {
    error: `at most ${maxProperties} entries`,
  })
  return noted(maxProperties === Infinity ? type : few, { schema: { ...said(description), type: 'object', ...limits } })
}

/** A map with whole numbers as its values. Takes the smallest and the largest number, and the most entries. */
export function integerMap(
  minimum: number,
  maximum: number,
  description: string,
  maxProperties: number,
): z.ZodRecord<z.ZodString, Field<number>> {
  const type = z.record(z.string(), integer(minimum, maximum), { error: 'a map' })
  const few = type.refine((value) => Object.keys(value).length <= maxProperties, {
    error: `at most ${maxProperties} entries`,
  })
  return noted(few, { schema: { ...said(description), type: 'object', maxProperties } })
}

/** An RFC 1123 label. */
export function dnsLabel(description = ''): Field<string> {
  const schema = {
    ...said(description),
    type: 'string',
    pattern: `^${LABEL_PATTERN}$`,
    minLength: 1,
    maxLength: MAX_LABEL,
  } as const
  return textField(schema, 'an RFC 1123 label: 1 to 63 of a-z, 0-9 and -')
}

/** The name of an object: like an RFC 1123 subdomain, but the API server lets a part be longer than DNS does. */
export function objectName(description: string): Field<string> {
  const pattern = `^${LABEL_PATTERN}(\\.${LABEL_PATTERN})*$`
  const schema = { ...said(description), type: 'string', pattern, minLength: 1, maxLength: MAX_NAME } as const
  return textField(schema, 'the name of an object: labels of a-z, 0-9 and - joined by dots')
}

/** An RFC 1123 subdomain. No CRD has one: see objectName(). */
export function dnsSubdomain(): Field<string> {
  return textThat('an RFC 1123 subdomain: labels of a-z, 0-9 and - joined by dots', isDnsSubdomain)
}

const RFC3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/

/** An RFC 3339 time. */
export function timestamp(description = ''): Field<string> {
  const schema = { ...said(description), type: 'string', format: 'date-time' } as const
  return textField(schema, 'an RFC 3339 time', (value) => RFC3339.test(value) && !Number.isNaN(Date.parse(value)))
}

/**
 * The network address of a range, without host bits. The CRD uses the CEL library of Kubernetes 1.31, and `maxLength`
 * limits the cost of its rule. Files of sites may have a longer form: an IPv6 range whose end is written as IPv4.
 */
export function cidr(description = ''): Field<string> {
  const rule = 'isCIDR(self) && cidr(self) == cidr(self).masked()'
  const message = 'expected a range such as 10.42.0.0/16, without host bits'
  const schema: Schema = {
    ...said(description),
    type: 'string',
    maxLength: 43,
    'x-kubernetes-validations': [{ rule, message }],
  }
  return noted(textThat('a CIDR without host bits such as 10.42.0.0/16', isPrefix), { schema })
}

export function ipAddress(description = ''): Field<string> {
  const rules = [{ rule: 'isIP(self)', message: 'expected an address such as 192.0.2.10' }]
  const schema: Schema = { ...said(description), type: 'string', maxLength: 45, 'x-kubernetes-validations': rules }
  return textField(schema, 'an IPv4 or IPv6 address such as 10.42.0.7', isAddress)
}

// What is said of a field beside its own grammar. Each returns a new type with the note.

/** A field that cannot change after it is set: a CEL rule of the API server, which no reader tests. */
export function fixed<T extends z.ZodType>(type: T, what: string): T {
  const { schema, ...note } = noteOf(type) ?? { schema: {} }
  const rule = { rule: 'self == oldSelf', message: `${what} cannot change` }
  const rules = [...(schema['x-kubernetes-validations'] ?? []), rule]
  return noted(type.clone(), { ...note, schema: { ...schema, 'x-kubernetes-validations': rules } })
}

/** A field without which no reader can go on: loose() keeps its grammar and its limits. */
export function relied<T extends z.ZodType>(type: T): T {
  return noted(type.clone(), { ...(noteOf(type) ?? { schema: {} }), relied: true })
}

/** A text that names something and is not empty, though the CRD has no grammar for it. */
export function named(type: Field<string>): Field<string> {
  const full = type.refine((value) => value !== '', { error: 'a name' })
  return noted(full, { ...(noteOf(type) ?? { schema: {} }), isName: true })
}

/** A name for which objects also have '' in the place of none: readers take it. */
export function nameOrNone<T extends z.ZodType>(type: T): T {
  return noted(type.clone(), { ...(noteOf(type) ?? { schema: {} }), isName: false })
}

/** A field that the strict form fills in where it is absent; readers take it as optional. */
export function byDefault<T extends z.ZodType>(type: T, value: z.util.NoUndefined<z.output<T>>): z.ZodDefault<T> {
  return type.default(value)
}

/** One of several forms. `expected` is the message for a value that has none of them. */
export function either<const T extends readonly z.ZodType[]>(expected: string, forms: T): z.ZodUnion<T> {
  return noted(z.union(forms, { error: expected }), { schema: {} })
}

/** A rule about several fields or entries, of which the strict form alone is judged. The check adds the issues. */
export function ruled<T extends z.ZodType>(
  type: T,
  check: (value: z.output<T>, context: z.RefinementCtx<z.output<T>>) => void,
): T {
  return noted(type.superRefine(check), noteOf(type) ?? { schema: {} })
}

/**
 * A field of a CRD that belongs to others. `ours` is what Sealane writes, and what the type says; `shared` is what the
 * CRD says, and what other products may write.
 */
export function asShared<T extends z.ZodType>(ours: T, shared: z.ZodType): T {
  return noted(ours.clone(), { ...(noteOf(ours) ?? { schema: {} }), shared })
}
