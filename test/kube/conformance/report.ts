/** Reads the report of the suite, and decides whether it passed. */
import { parse } from 'yaml'
import type { Excuse } from './under-translation.ts'

export type SpecResult = 'passed' | 'failed' | 'skipped' | 'excused'

export interface SpecRow {
  readonly group: string
  readonly spec: string
  readonly result: SpecResult
  /** Why it did not pass; '' if it passed. */
  readonly reason: string
}

export interface Validation {
  readonly rows: readonly SpecRow[]
  /** The reasons against success, one line each. */
  readonly faults: readonly string[]
}

/** The fields of the suite's report that are read. */
interface SuiteReport {
  readonly groups?: readonly { readonly name: string; readonly tests: readonly ReportedSpec[] }[]
  readonly suitefailure?: string
}

interface ReportedSpec {
  readonly desc: string
  readonly passed: boolean
  readonly skipped: boolean
  readonly message: string
}

/** The least number of specs that the standard's suite has had: a run of only a part is no success. */
const FEWEST = { Required: 14, Optional: 13 } as const

/**
 * Evaluates the text of report.yaml: every spec must pass, except those with an excuse, which may fail. Throws if the
 * text is not YAML.
 */
export function validate(text: string, excuses: readonly Excuse[] = []): Validation {
  const { groups = [], suitefailure = '' } = (parse(text) ?? {}) as SuiteReport
  const rows = groups.flatMap(({ name, tests }) => tests.map((spec) => rowOf(name, spec, excuses)))
  const faults = [
    ...(suitefailure === '' ? [] : [`the suite did not start: ${suitefailure}`]),
    ...rows.filter(({ result }) => result === 'failed' || result === 'skipped').map(faultOf),
    ...Object.entries(FEWEST).flatMap(([group, fewest]) => {
      const found = rows.filter((row) => row.group === group).length
      return found < fewest ? [`${found} ${group} specs are in the report, at least ${fewest} are expected`] : []
    }),
    ...excuses
      .filter(({ spec }) => !rows.some((row) => row.spec === spec))
      .map(({ id }) => `${id} has an excuse, and there is no such spec in the report`),
  ]
  return { rows, faults }
}

function rowOf(group: string, { desc, passed, skipped, message }: ReportedSpec, excuses: readonly Excuse[]): SpecRow {
  const reason = message.replace(/^[\s-]+/, '')
  if (passed) return { group, spec: desc, result: 'passed', reason: '' }
  if (skipped) return { group, spec: desc, result: 'skipped', reason }
  const excuse = excuses.find(({ spec }) => spec === desc)
  if (excuse === undefined) return { group, spec: desc, result: 'failed', reason }
  return { group, spec: desc, result: 'excused', reason: `${excuse.id}: ${excuse.reason}` }
}

function faultOf({ spec, result, reason }: SpecRow): string {
  return `${result}: ${spec}${reason === '' ? '' : ` (${reason})`}`
}

/** One line for each spec, followed by its reason if there is one, and a line of numbers. */
export function tableOf(rows: readonly SpecRow[]): string {
  const lines = rows.flatMap(({ group, spec, result, reason }) => [
    `${result.padEnd(8)} ${group.padEnd(9)} ${spec}`,
    ...(reason === '' ? [] : [`${' '.repeat(19)}${reason}`]),
  ])
  const count = (result: SpecResult): number => rows.filter((row) => row.result === result).length
  const others = (['failed', 'skipped', 'excused'] as const).filter((result) => count(result) > 0)
  const numbers = [
    `${count('passed')} of ${rows.length} passed`,
    ...others.map((result) => `${count(result)} ${result}`),
  ]
  return `${[...lines, numbers.join(', ')].join('\n')}\n`
}
