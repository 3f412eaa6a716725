/**
 * Lets one source produce objects and chart templates. The planners get values, or for the chart placeholders. A text
 * becomes `{{ .Values.path }}`, so that it can be joined with other text as usual. Every other value becomes a
 * TemplateValue. A planner never inspects a value itself: it uses when(), each(), optional() or digest().
 */
import { createHash } from 'node:crypto'

type TextMap = Readonly<Record<string, string>>

/** A placeholder for a value of the chart. */
class TemplatePlace {
  readonly path: string
  constructor(path: string) {
    this.path = path
  }
}

class TemplateItems<T> extends TemplatePlace {
  readonly items: readonly T[]
  constructor(path: string, items: readonly T[]) {
    super(path)
    this.items = items
  }
}

/** A placeholder for a number, a flag, a list or a map of the chart. */
export class TemplateValue extends TemplatePlace {}

export interface ConditionTerms {
  /** The text that the value must equal. */
  readonly word?: string
  /** The path of another value that also satisfies the condition. */
  readonly or?: string
}

/** List items or whole objects that are included if the value is true or not empty, or as the terms require. */
export class Conditional extends TemplateItems<unknown> {
  readonly terms: ConditionTerms
  constructor(path: string, items: readonly unknown[], terms: ConditionTerms = {}) {
    super(path, items)
    this.terms = terms
  }
}

/** Maps of the user with our entries. Earlier maps take precedence over later ones, and our entries over all. */
export class ExtendedMap {
  readonly paths: readonly string[]
  readonly ours: TextMap
  constructor(paths: readonly string[], ours: TextMap) {
    this.paths = paths
    this.ours = ours
  }
}

/** List items that are repeated for each text of a list. `{{ . }}` is that text. */
export class Repeated extends TemplateItems<string> {}

/** The value of a map entry that is left out if the text is empty. `expression` is its template expression. */
export class OptionalText {
  readonly expression: string
  constructor(expression: string) {
    this.expression = expression
  }
}

/** A list or map of the chart that is left out if it is empty. */
export class OptionalValue extends TemplatePlace {}

/** Maps whose keys the user chooses. They become one placeholder each. */
const OPAQUE = new Set(['resources', 'nodeSelector', 'annotations', 'labels', 'seLinuxOptions'])

/** The same structure, with a placeholder for each value. */
export function placeholders<T extends object>(values: T, under = ''): T {
  const entries = Object.entries(values).map(([key, value]: [string, unknown]) => {
    const path = under === '' ? key : `${under}.${key}`
    if (typeof value === 'string') return [key, textPlaceholder(path)]
    const isGroup = typeof value === 'object' && value !== null && !Array.isArray(value) && !OPAQUE.has(key)
    return [key, isGroup ? placeholders(value, path) : new TemplateValue(path)]
  })
  return Object.fromEntries(entries) as T
}

/** A text that consists of a single placeholder. */
const EXPRESSION = /^\{\{ ([^{}]+) \}\}$/
const TEXT_PLACEHOLDER = /^\{\{ \.Values\.([A-Za-z0-9.]+) \}\}$/

function textPlaceholder(path: string): string {
  return `{{ .Values.${path} }}`
}

/** The path of a placeholder. Undefined for a plain value. */
export function placeholderPath(value: unknown): string | undefined {
  if (value instanceof TemplateValue) return value.path
  return typeof value === 'string' ? TEXT_PLACEHOLDER.exec(value)?.[1] : undefined
}

/** The items if the flag is true, or if the text or map is not empty. To be spread into a list. */
export function when<T>(value: boolean | string | TextMap, ...items: readonly T[]): readonly T[] {
  const path = placeholderPath(value)
  if (path !== undefined) return [new Conditional(path, items) as T]
  if (typeof value === 'object') return Object.keys(value).length > 0 ? items : []
  return value === true || (typeof value === 'string' && value !== '') ? items : []
}

/** The items if one of the flags is true. To be spread into a list. */
export function whenEither<T>(a: boolean, b: boolean, ...items: readonly T[]): readonly T[] {
  const [path, or] = [placeholderPath(a), placeholderPath(b)]
  if (path !== undefined && or !== undefined) return [new Conditional(path, items, { or }) as T]
  return a || b ? items : []
}

/** The items if the text equals the word. To be spread into a list. */
export function whenIs<T>(value: string, word: string, ...items: readonly T[]): readonly T[] {
  const path = placeholderPath(value)
  if (path !== undefined) return [new Conditional(path, items, { word }) as T]
  return value === word ? items : []
}

/**
 * Adds entries of the user to ours, which take precedence. Earlier maps of `given` take precedence over later ones.
 * Undefined if there are no entries.
 */
export function withOurs(ours: TextMap | undefined, ...given: readonly TextMap[]): TextMap | undefined {
  const paths = given.map(placeholderPath)
  if (paths.every((path) => path !== undefined)) return extended(ours, paths)
  const all = Object.assign({}, ...[...given].reverse(), ours) as TextMap
  return Object.keys(all).length === 0 ? undefined : all
}

function extended(ours: unknown, paths: readonly string[]): TextMap {
  const before = placeholderPath(ours)
  const map =
    ours instanceof ExtendedMap
      ? new ExtendedMap([...ours.paths, ...paths], ours.ours)
      : new ExtendedMap([...(before === undefined ? [] : [before]), ...paths], before === undefined ? asMap(ours) : {})
  return map as unknown as TextMap
}

function asMap(value: unknown): TextMap {
  return (value ?? {}) as TextMap
}

/** The results of `make` for each text of the list. To be spread into a list. */
export function each(values: readonly string[], make: (value: string) => readonly string[]): readonly string[] {
  const path = placeholderPath(values)
  // The placeholder of a list of texts becomes a loop of the chart.
  if (path !== undefined) return [new Repeated(path, make('{{ . }}')) as unknown as string]
  return values.flatMap(make)
}

/** Undefined for an empty text, so that the field is left out. */
export function optional(value: string): string | undefined {
  const expression = EXPRESSION.exec(value)?.[1]
  if (expression !== undefined) return new OptionalText(expression) as unknown as string
  return value === '' ? undefined : value
}

/**
 * A map entry that exists only if the flag is true. To be spread into a map. The text must not need quoting.
 */
export function entryWhen(flag: boolean, key: string, text: string): TextMap {
  const path = placeholderPath(flag)
  if (path !== undefined) {
    return { [key]: new OptionalText(`(ternary "${text}" "" .Values.${path})`) as unknown as string }
  }
  return flag ? { [key]: text } : {}
}

/**
 * Undefined for an empty list or map, so that the field is left out. An API server does not store an empty one, so
 * `kubectl apply` would send it each time.
 */
export function unlessEmpty<T extends object>(value: T): T | undefined {
  if (value instanceof TemplateValue) return new OptionalValue(value.path) as unknown as T
  return Object.keys(value).length === 0 ? undefined : value
}

/**
 * The text, or if it is empty, the table's entry for `key`, or an empty text. The table's keys and texts must not need
 * quoting.
 */
export function orByTable(said: string, key: string, table: Readonly<Record<string, string>>): string {
  const [path, keyPath] = [placeholderPath(said), placeholderPath(key)]
  if (path === undefined || keyPath === undefined) return said === '' ? (table[key] ?? '') : said
  const words = Object.entries(table).flatMap((pair) => pair.map((word) => `\`${word}\``))
  return `{{ .Values.${path} | default (get (dict ${words.join(' ')}) .Values.${keyPath}) }}`
}

/** Characters that Helm's toJson() escapes, and `$`, since Kubernetes expands `$(NAME)` in an environment variable. */
const ESCAPED = /[$<>&\u2028\u2029]/g

/**
 * A map as JSON for an environment variable. The order of the keys does not matter. In the chart, it is the value of an
 * entry that exists only if the map is not empty.
 */
export function jsonText(map: TextMap): string {
  const path = placeholderPath(map)
  if (path === undefined) {
    const sorted = Object.fromEntries(Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1)))
    return JSON.stringify(sorted).replace(ESCAPED, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
  }
  return new OptionalText(`(.Values.${path} | toJson | replace "$" "\\\\u0024")`) as unknown as string
}

/** The SHA-256 of a text in hexadecimal. */
export function digest(text: string): string {
  const path = placeholderPath(text)
  return path === undefined ? createHash('sha256').update(text).digest('hex') : `{{ .Values.${path} | sha256sum }}`
}

/** An object that is written to a file or sent to an API server. */
export interface ManifestObject {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly namespace?: string
    readonly labels?: Readonly<Record<string, string>>
    readonly annotations?: Readonly<Record<string, string>>
  }
  readonly [field: string]: unknown
}
