/**
 * YAML for people and for files that people edit, and YAML inside other things. Whole files: files/user/yaml-source.ts.
 */
import { parse, stringify } from 'yaml'

/** Block style, long lines kept whole, `apiVersion` first as everybody writes it. Ends with a newline. */
export function formatYaml(value: unknown): string {
  return stringify(value, { lineWidth: 0, indentSeq: true, aliasDuplicateObjects: false })
}

/** One document of YAML or JSON as plain data. Throws on anything else, and on aliases that multiply. */
export function parseYaml(text: string): unknown {
  return parse(text, { maxAliasCount: 50, logLevel: 'error' })
}
