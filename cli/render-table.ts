/** Tables for people: columns as wide as their widest cell, two spaces between, no frame. */
import { printable } from '../model/status-text.ts'

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
