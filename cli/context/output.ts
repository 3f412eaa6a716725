/** Where commands write: answers to stdout, remarks to stderr; a table for people or JSON/YAML for programs. */
import { forTerminal, jsonForTerminal, printable } from '../../model/model.ts'
import type { Logger } from '../../runtime/logging/logging.ts'

export const OUTPUT_FORMATS = ['table', 'wide', 'json', 'yaml'] as const
export type OutputFormat = (typeof OUTPUT_FORMATS)[number]

export interface Output {
  answer(text: string): void
  remark(text: string): void
}

/** Empties a terminal: the one text of ours that may steer it. */
export const CLEAR_SCREEN = '\u001b[H\u001b[2J'

/** Writes to the process's streams. What brokers, members and files say in our texts cannot steer the terminal. */
export const processOutput: Output = {
  answer: (text) => void process.stdout.write(text === CLEAR_SCREEN ? text : forTerminal(text)),
  remark: (text) => void process.stderr.write(forTerminal(text)),
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
      output.answer(jsonText({ items }))
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
  else output.answer(format === 'json' ? jsonText(value) : await yamlOf(value))
}

function jsonText(value: object): string {
  return `${jsonForTerminal(JSON.stringify(value, undefined, 2))}\n`
}

/** Few ask for it, and the package is a large one. */
async function yamlOf(value: object): Promise<string> {
  const { formatYaml } = await import('../../kubeapi/yaml.ts')
  return formatYaml(value)
}

/** The log of commands that end by themselves: warnings as plain lines on stderr, the rest unsaid. */
export class PlainLogger implements Logger {
  readonly #output: Output
  constructor(output: Output) {
    this.#output = output
  }
  debug(): void {
    // Of no use to somebody who asked one question.
  }
  info(): void {
    // As above.
  }
  warn(message: string): void {
    this.#output.remark(`sealane: ${message}\n`)
  }
  error(message: string): void {
    this.#output.remark(`sealane: ${message}\n`)
  }
  child(): this {
    return this
  }
}

// Tables for people: columns as wide as their widest cell, two spaces between, no frame.

export interface Column<T> {
  readonly title: string
  readonly cell: (row: T) => string
  readonly align?: 'left' | 'right'
  /** Only in wide tables. */
  readonly wide?: true
}

/** One line per row below a heading; ends with a newline. Control characters in cells are shown as '?'. */
export function renderTable<T>(columns: readonly Column<T>[], rows: readonly T[]): string {
  const cells = rows.map((row) => columns.map((column) => printable(column.cell(row))))
  const widths = columns.map((column, i) => Math.max(column.title.length, ...cells.map((line) => line[i]?.length ?? 0)))
  const lines = [columns.map((column) => column.title), ...cells].map((line) =>
    line
      .map((cell, i) => (columns[i]?.align === 'right' ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)))
      .join('  ')
      .trimEnd(),
  )
  return `${lines.join('\n')}\n`
}
