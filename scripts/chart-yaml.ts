/** Objects with places in them (install/values/manifest.ts) as the text of a Helm template. */
import {
  Conditional,
  ExtendedMap,
  OptionalText,
  OptionalValue,
  Repeated,
  TemplateValue,
  placeholderPath,
} from '../install/values/manifest.ts'

/** A file with all the objects, each after `---`. `enabledBy` is a value that switches the whole file. */
export function chartTemplate(objects: readonly unknown[], enabledBy: string): string {
  return [`{{- if .Values.${enabledBy} }}`, ...objects.flatMap(documentLines), '{{- end }}', ''].join('\n')
}

function documentLines(object: unknown): string[] {
  if (object instanceof Conditional) return [ifLine(object), ...object.items.flatMap(documentLines), '{{- end }}']
  return ['---', ...mapLines(asMap(object))]
}

function ifLine({ path, terms: { word, or } }: Conditional): string {
  if (or !== undefined) return `{{- if or .Values.${path} .Values.${or} }}`
  return word === undefined ? `{{- if .Values.${path} }}` : `{{- if eq .Values.${path} ${JSON.stringify(word)} }}`
}

function asMap(value: unknown): Readonly<Record<string, unknown>> {
  return value as Readonly<Record<string, unknown>>
}

function mapLines(map: Readonly<Record<string, unknown>>): string[] {
  return Object.entries(map).flatMap(([key, value]) => {
    if (value === undefined) return []
    if (value instanceof OptionalText) {
      return [`{{- with ${value.expression} }}`, `${scalar(key)}: {{ . | quote }}`, '{{- end }}']
    }
    if (value instanceof OptionalValue) {
      return [`{{- with .Values.${value.path} }}`, `${scalar(key)}: {{ toJson . }}`, '{{- end }}']
    }
    if (value instanceof ExtendedMap) return extendedLines(scalar(key), value)
    return entryLines(`${scalar(key)}:`, value)
  })
}

/** A key of ours that the user gives too would be there twice: it is left out. */
function extendedLines(key: string, { paths, ours }: ExtendedMap): string[] {
  const [first = ''] = paths
  const places = paths.map((path) => `.Values.${path}`)
  // `merge` writes into its first map.
  const given = paths.length === 1 ? `.Values.${first}` : `(merge (dict) ${places.join(' ')})`
  if (Object.keys(ours).length === 0) return [`{{- with ${given} }}`, `${key}: {{ toJson . }}`, '{{- end }}']
  const keys = Object.keys(ours).map((one) => JSON.stringify(one))
  return [
    `${key}:`,
    ...indented([
      `{{- range $key, $value := omit ${given} ${keys.join(' ')} }}`,
      '{{ $key | quote }}: {{ $value | quote }}',
      '{{- end }}',
      ...mapLines(ours),
    ]),
  ]
}

/** `head` is a key with its colon; a scalar follows it, anything else is below it. */
function entryLines(head: string, value: unknown): string[] {
  if (Array.isArray(value) && value.length > 0) return [head, ...indented(listLines(value))]
  if (isMap(value) && Object.keys(value).length > 0) return [head, ...indented(mapLines(value))]
  return [`${head} ${scalar(value)}`]
}

function listLines(list: readonly unknown[]): string[] {
  return list.flatMap((item: unknown) => {
    if (item instanceof Conditional) {
      return [ifLine(item), ...listLines(item.items), '{{- end }}']
    }
    if (item instanceof Repeated) return [`{{- range .Values.${item.path} }}`, ...listLines(item.items), '{{- end }}']
    const lines = Array.isArray(item) ? listLines(item) : isMap(item) ? mapLines(item) : [scalar(item)]
    return lines.map((line, i) => (i === 0 ? `- ${line}` : shift(line)))
  })
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof TemplateValue)
}

/** Control lines stay at the left: the blank before them is trimmed either way, and they are seen better. */
function shift(line: string): string {
  return line.startsWith('{{-') ? line : `  ${line}`
}

function indented(lines: readonly string[]): string[] {
  return lines.map(shift)
}

const PLAIN = /^[A-Za-z/][\w./-]*$/
const NOT_TEXT = /^(true|false|yes|no|on|off|null|y|n)$/i

function scalar(value: unknown): string {
  if (value instanceof TemplateValue) return `{{ toJson .Values.${value.path} }}`
  if (typeof value !== 'string') return JSON.stringify(value)
  const path = placeholderPath(value)
  if (path !== undefined) return `{{ .Values.${path} | quote }}`
  if (value === '{{ . }}') return '{{ . | quote }}'
  if (value.includes('{{')) return withPlaces(value)
  return PLAIN.test(value) && !NOT_TEXT.test(value) ? value : JSON.stringify(value)
}

/** Text around places, such as repository:tag. The values there are held to harmless characters by the schema. */
function withPlaces(value: string): string {
  if (/["\\\n]/.test(value)) throw new Error(`a text with places and quotes: ${value}`)
  return `"${value}"`
}
