/**
 * YAML for display, for files that users edit, and YAML inside other data. For whole files see
 * kubeapi/files/yaml-source.ts.
 */
import {
  type Document,
  type ParseOptions,
  YAMLParseError,
  isScalar,
  parseAllDocuments,
  parseDocument,
  stringify,
  visit,
} from 'yaml'

/**
 * Formats in block style with unbroken lines and `apiVersion` first. Ends with a newline. Texts such as `on` are
 * quoted, since kubectl and Helm, which read YAML 1.1, would not read them as text.
 */
export function formatYaml(value: unknown): string {
  return stringify(value, { lineWidth: 0, indentSeq: true, aliasDuplicateObjects: false, compat: 'yaml-1.1' })
}

/** Parses one document of YAML or JSON as plain data. Throws on anything else, and on aliases that multiply. */
export function parseYaml(text: string): unknown {
  const document = withUniqueKeys(parseDocument(text, { ...EACH_KEY_ONCE, logLevel: 'error' }))
  const [error] = document.errors
  if (error !== undefined) throw error
  return document.toJS({ maxAliasCount: 50 })
}

/**
 * Parses all documents of a text, with merge keys; each has the errors that were found in it. Throws RangeError if it
 * is nested too deeply.
 */
export function parseDocuments(text: string, options: Pick<ParseOptions, 'lineCounter'>): readonly Document[] {
  const all = { ...options, ...EACH_KEY_ONCE, prettyErrors: false, merge: true, logLevel: 'silent' } as const
  const parsed = parseAllDocuments(text, all)
  return Array.isArray(parsed) ? parsed.map(withUniqueKeys) : []
}

/**
 * The parser compares each key of a map with all previous ones: 256 KiB of keys take 6 s. withUniqueKeys() does not.
 */
const EACH_KEY_ONCE = { uniqueKeys: false } as const

/** Adds an error for each duplicate key of a map, as the parser would. */
function withUniqueKeys<T extends Document>(document: T): T {
  visit(document, {
    Map: (_, map) => {
      const seen = new Set<unknown>()
      for (const { key } of map.items) {
        if (!isScalar(key)) continue
        const [start = 0, end = start] = key.range ?? []
        if (seen.has(key.value)) {
          document.errors.push(new YAMLParseError([start, end], 'DUPLICATE_KEY', 'Map keys must be unique'))
        }
        seen.add(key.value)
      }
    },
  })
  return document
}
