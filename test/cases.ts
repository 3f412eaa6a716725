/** The committed number of cases of each test file (cases.txt), so that a file that loses some is noticed. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type FileSaid, countsOf } from './run-files.ts'

export const CASES_FILE = join(import.meta.dirname, 'cases.txt')

export type CaseList = ReadonlyMap<string, number>

/** Throws Error for a line that is not `path number`. */
export function parseCases(text: string): CaseList {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map((line) => {
      const [, path, count] = /^(\S+\.test\.ts) (\d+)$/.exec(line) ?? []
      if (path === undefined)
        throw new Error(`test/cases.txt: ${JSON.stringify(line)}: expected a test file and a number`)
      return [path, Number(count)]
    }),
  )
}

export function readCases(path = CASES_FILE): CaseList {
  return existsSync(path) ? parseCases(readFileSync(path, 'utf8')) : new Map()
}

/**
 * The files that have fewer cases than the list says, a line each. A file that failed or skipped a test reports its own
 * problem, and may not have reached all of its tests.
 */
export function lostCases(list: CaseList, said: readonly FileSaid[]): readonly string[] {
  return said.flatMap((one) => {
    const { passed, failed, skipped } = countsOf([one])
    const listed = list.get(one.file) ?? 0
    if (failed > 0 || skipped > 0 || passed >= listed) return []
    return [`${one.file} has lost tests: ${listed} are in test/cases.txt, ${passed} ran`]
  })
}

const HEAD = `# Test files and how many cases each has. A file with fewer is red. Written by:
#   SEALANE_UPDATE_CASES=1 npm test (or any tier, or file)
`

/** Stores the number of cases of these files, if they passed; files that are gone leave the list. */
export function updateCases(said: readonly FileSaid[], exists: (file: string) => boolean, path = CASES_FILE): void {
  const good = said.flatMap((one) => {
    const { passed, failed, skipped } = countsOf([one])
    return failed > 0 || skipped > 0 ? [] : [[one.file, passed] as const]
  })
  const now = new Map([...readCases(path), ...good])
  const lines = [...now].filter(([file]) => exists(file)).sort(([a], [b]) => (a < b ? -1 : 1))
  writeFileSync(path, HEAD + lines.map(([file, count]) => `${file} ${count}\n`).join(''))
}
