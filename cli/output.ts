/** Where commands write: answers to stdout, remarks to stderr; a table for people or JSON/YAML for programs. */
import { type Column, renderTable } from './render-table.ts'

export const OUTPUT_FORMATS = ['table', 'wide', 'json', 'yaml'] as const
export type OutputFormat = (typeof OUTPUT_FORMATS)[number]

export interface Output {
  answer(text: string): void
  remark(text: string): void
}

export const processOutput: Output = {
  answer: (text) => void process.stdout.write(text),
  remark: (text) => void process.stderr.write(text),
}

/** JSON and YAML carry whole objects under `items`; the table shows what people look for, a wide one all columns. */
export async function printItems<T>(
  output: Output,
  format: OutputFormat,
  items: readonly T[],
  columns: readonly Column<T>[],
): Promise<void> {
  switch (format) {
    case 'json':
      output.answer(`${JSON.stringify({ items }, undefined, 2)}\n`)
      return
    case 'yaml':
      output.answer(await yamlOf({ items }))
      return
    case 'table':
    case 'wide': {
      const shown = columns.filter(({ wide = false }) => format === 'wide' || !wide)
      if (items.length === 0) output.remark('none\n')
      else output.answer(renderTable(shown, items))
    }
  }
}

export async function printOne(output: Output, format: OutputFormat, value: object, text: string): Promise<void> {
  if (format === 'table' || format === 'wide') output.answer(text)
  else output.answer(format === 'json' ? `${JSON.stringify(value, undefined, 2)}\n` : await yamlOf(value))
}

/** Few ask for it, and the package is a large one. */
async function yamlOf(value: object): Promise<string> {
  const { formatYaml } = await import('../kubeapi/yaml.ts')
  return formatYaml(value)
}
