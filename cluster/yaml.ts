/** YAML out, for people and for files that people edit. In: files/parse-objects.ts and files/site-file.ts. */
import { stringify } from 'yaml'

/** Block style, long lines kept whole, `apiVersion` first as everybody writes it. Ends with a newline. */
export function formatYaml(value: unknown): string {
  return stringify(value, { lineWidth: 0, indentSeq: true, aliasDuplicateObjects: false })
}
