/** The report of a test file that has ended, for people. */
import { type FileSaid, countsOf } from './run-files.ts'

const MOST_LINES = 400
const MOST_ERRORS = 4000

/** The line for the file, with its line break. */
export function fileLine(said: FileSaid): string {
  const { passed, failed } = countsOf([said])
  const count = failed === 0 ? `${passed} ok` : `${failed} of ${passed + failed} FAILED`
  return `${count.padStart(16)} ${(said.ms / 1000).toFixed(1).padStart(6)} s  ${said.file}\n`
}

/** The failed cases, each with the lines that explain it, and the end of the file's stderr. */
export function failures({ output, errors, fault }: FileSaid): string {
  const lines = output.split('\n')
  const shown = new Set<number>()
  for (const [i, line] of lines.entries()) {
    if (!/^ *not ok\b/.test(line)) continue
    for (let n = i; n < i + 30 && (n === i || !/^ *(not )?ok\b/.test(lines[n] ?? '')); n += 1) shown.add(n)
  }
  const text = [...shown].slice(0, MOST_LINES).map((n) => lines[n] ?? '')
  return joined([...text, errors.slice(-MOST_ERRORS), fault ?? ''])
}

/** All output of the file. */
export function wholeLog({ output, errors, fault }: FileSaid): string {
  return joined([output, errors, fault ?? ''])
}

function joined(parts: readonly string[]): string {
  const text = parts.map((part) => part.trimEnd()).filter((part) => part !== '')
  return text.length === 0 ? '' : `${text.join('\n')}\n`
}
