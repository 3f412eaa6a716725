/** The result of `sealane verify`: a table, an object for programs, and JUnit XML for CI. Pure. */
import { printable } from '../../../model/model.ts'
import { type Column, renderTable } from '../../context/context.ts'
import { type CheckRow, healthOf } from './check-outcome.ts'

const COLUMNS: readonly Column<CheckRow>[] = [
  { title: 'WAY', cell: ({ way }) => way },
  { title: 'CHECK', cell: ({ check, family }) => (family === undefined ? check : `${check} IPv${family}`) },
  { title: 'RESULT', cell: ({ result }) => (result === 'fail' ? 'FAILED' : result === 'pass' ? 'ok' : 'left out') },
  { title: 'MEASURED', cell: ({ measured }) => measured },
  { title: 'REASON', cell: ({ reason = '' }) => reason },
  { title: 'WHAT TO DO', cell: ({ result, todo = '' }) => (result === 'fail' ? todo : '') },
]

export interface VerifyReport {
  readonly health: ReturnType<typeof healthOf>
  readonly run: string
  readonly namespace: string
  readonly members: readonly string[]
  readonly passed: number
  readonly failed: number
  readonly skipped: number
  readonly checks: readonly CheckRow[]
}

export function verifyReport(
  rows: readonly CheckRow[],
  about: Pick<VerifyReport, 'run' | 'namespace' | 'members'>,
): VerifyReport {
  const count = (result: CheckRow['result']): number => rows.filter((row) => row.result === result).length
  const counts = { passed: count('pass'), failed: count('fail'), skipped: count('skip') }
  return { health: healthOf(rows), ...about, ...counts, checks: rows }
}

export function verifyText({ checks, passed, failed, skipped }: VerifyReport): string {
  const end = `${passed} checks passed, ${failed} failed, ${skipped} left out`
  return `${renderTable(COLUMNS, checks)}\n${end}\n`
}

/** One test suite for each direction, in the XML that CI systems read. */
export function verifyJunit({ checks }: VerifyReport): string {
  const ways = [...new Set(checks.map(({ way }) => way))]
  const suites = ways.map((way) =>
    suiteXml(
      way,
      checks.filter((row) => row.way === way),
    ),
  )
  const total = totalsOf(checks)
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="sealane verify" ${total}>\n${suites.join('')}</testsuites>\n`
}

function suiteXml(way: string, rows: readonly CheckRow[]): string {
  return `  <testsuite name="${xml(way)}" ${totalsOf(rows)}>\n${rows.map(caseXml).join('')}  </testsuite>\n`
}

function totalsOf(rows: readonly CheckRow[]): string {
  const of = (result: CheckRow['result']): number => rows.filter((row) => row.result === result).length
  const seconds = rows.reduce((sum, { ms }) => sum + ms, 0) / 1000
  return `tests="${rows.length}" failures="${of('fail')}" errors="0" skipped="${of('skip')}" time="${seconds.toFixed(3)}"`
}

function caseXml({ check, family, way, result, measured, reason: code, todo = '', ms }: CheckRow): string {
  const reason = code ?? ''
  const name = family === undefined ? check : `${check} IPv${family}`
  const head = `    <testcase classname="${xml(way)}" name="${name}" time="${(ms / 1000).toFixed(3)}"`
  switch (result) {
    case 'pass':
      return `${head}>\n      <system-out>${xml(measured)}</system-out>\n    </testcase>\n`
    case 'skip':
      return `${head}>\n      <skipped message="${xml(`${reason}: ${measured}`)}"/>\n    </testcase>\n`
    case 'fail':
      return `${head}>\n      <failure type="${xml(reason)}" message="${xml(measured)}">${xml(todo)}</failure>\n    </testcase>\n`
  }
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

function xml(text: string): string {
  return printable(text).replaceAll(/[&<>"]/g, (one) => ENTITIES[one] ?? one)
}
