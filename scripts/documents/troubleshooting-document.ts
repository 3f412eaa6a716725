/** The second half of docs/troubleshooting.md: every reason code, from the failure table and the table of reasons. */
import type { ReasonRow } from '../../model/reasons/reason-row.ts'
import { REASON_PARTS } from '../../model/reasons/reasons.ts'
import { ALL_FAILURES, FAILURES } from './failures.ts'
import { paragraph } from './wrap-text.ts'

/** What is before it in the document is written by hand. */
export const CODES_FROM = '<!-- What follows is written by: npm run docs:troubleshooting -->'

type Entry = readonly [code: string, row: ReasonRow]

const ENTRIES: readonly Entry[] = Object.values(REASON_PARTS).flatMap((part) => Object.entries<ReasonRow>(part))
const NOTHING = 'Nothing.'

/** The whole document: what is there up to the mark, and the codes. */
export function troubleshootingDocument(present: string): string {
  const mark = present.indexOf(CODES_FROM)
  const head = mark < 0 ? `${present.trimEnd()}\n\n` : present.slice(0, mark)
  const symptoms = new Map<string, string>(ALL_FAILURES.map(({ code, symptom }) => [code, symptom]))
  /** The code that has an advice in full; others with the same one refer to it. */
  const firstWith = new Map<string, string>()
  const section = (title: string, entries: readonly Entry[]): string =>
    [`### ${title}`, ...entries.map((entry) => codeText(entry, symptoms, firstWith))].join('\n\n')
  const bySymptom = Object.entries(FAILURES).map(([title, rows]) =>
    section(
      title,
      rows.flatMap(({ code }) => ENTRIES.filter(([one]) => one === code)),
    ),
  )
  const others = Object.entries(REASON_PARTS).flatMap(([title, rows]) => {
    const left = Object.entries<ReasonRow>(rows).filter(([code]) => !symptoms.has(code))
    return left.length === 0 ? [] : [section(title, left.toSorted(byCode))]
  })
  const blocks = ['## What the commands name', INTRODUCTION, ONLY_DIAGNOSE, ...bySymptom]
  return `${head}${CODES_FROM}\n\n${[...blocks, '## Other codes', OTHERS, ...others].join('\n\n')}\n`
}

const INTRODUCTION = [
  '`sealane status` and `sealane diagnose` name causes by these codes, the worst first. Conditions and events have a code',
  'as their `reason`, metrics as the label `reason` or `code`, log lines as the field `reason`. Codes keep their meaning',
  'from release to release; texts may change. The second paragraph says what to do; a code without it needs no action.',
].join('\n')

const ONLY_DIAGNOSE = [
  'Only `sealane diagnose` finds some codes. Of a site, run it as root on the machine; of several members',
  '(`--all-contexts`, or several of `--site` or `--bundle`), it compares both ends of each link.',
].join('\n')

const OTHERS = 'Conditions, events, metrics, logs and refusals have these codes, too.'

function codeText([code, row]: Entry, symptoms: ReadonlyMap<string, string>, firstWith: Map<string, string>): string {
  const { means, todo, standard } = row
  const symptom = symptoms.get(code) ?? ''
  const first = firstWith.get(todo)
  if (first === undefined) firstWith.set(todo, code)
  const advice = first === undefined || todo.length < 60 ? todo : `As for [\`${first}\`](#${first.toLowerCase()}).`
  const meaning = [
    ...(symptom === '' ? [] : [`*${symptom}.*`]),
    means,
    ...(standard === undefined ? [] : [`(${standard})`]),
  ]
  const paragraphs = [meaning.join(' '), ...(todo === NOTHING ? [] : [advice])]
  return [`#### \`${code}\``, ...paragraphs.map(paragraph)].join('\n\n')
}

function byCode([a]: Entry, [b]: Entry): number {
  return a.toLowerCase() < b.toLowerCase() ? -1 : 1
}
