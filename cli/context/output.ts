/** The output of commands: answers on stdout, remarks on stderr; a table for people, or JSON or YAML for programs. */
import { forTerminal, jsonForTerminal, printable } from '../../model/model.ts'
import type { Logger } from '../../runtime/logging/logging.ts'

export const OUTPUT_FORMATS = ['table', 'wide', 'json', 'yaml'] as const
export type OutputFormat = (typeof OUTPUT_FORMATS)[number]

export interface Output {
  answer(text: string): void
  remark(text: string): void
}

/** Clears the terminal. This is the only text of Sealane that may contain control sequences. */
export const CLEAR_SCREEN = '\u001b[H\u001b[2J'

/** Writes to the streams of the process. Control characters from brokers, members and files are neutralized. */
export const processOutput: Output = {
  answer: (text) => void process.stdout.write(text === CLEAR_SCREEN ? text : forTerminal(text)),
  remark: (text) => void process.stderr.write(forTerminal(text)),
}

/** JSON and YAML contain whole objects under `items`. The table has the main columns, the wide table all columns. */
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

/** Loaded on demand, because the YAML package is large and few callers need it. */
async function yamlOf(value: object): Promise<string> {
  const { formatYaml } = await import('../../kubeapi/yaml.ts')
  return formatYaml(value)
}

/** The log of short-lived commands: warnings and errors as plain lines on stderr. All other messages are dropped. */
export class PlainLogger implements Logger {
  readonly #output: Output
  constructor(output: Output) {
    this.#output = output
  }
  debug(): void {
    // A short-lived command prints no debug messages.
  }
  info(): void {
    // A short-lived command prints no info messages.
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

// Tables for people: each column is as wide as its widest cell, with two spaces between columns and no frame.

export interface Column<T> {
  readonly title: string
  readonly cell: (row: T) => string
  readonly align?: 'left' | 'right'
  /** The column is shown only in wide tables. */
  readonly wide?: true
}

/** One line for each row below a heading line. Ends with a newline. Control characters in cells are shown as '?'. */
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
