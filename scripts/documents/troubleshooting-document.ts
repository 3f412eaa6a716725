/** The second half of docs/troubleshooting.md, from the failure table and the table of reasons. */
import { reasonRow } from '../../model/reasons/reasons.ts'
import { FAILURES, type FailureRow, type SeenBy } from './failures.ts'
import { listItem } from './wrap-text.ts'

/** What is before it in the document is written by hand. */
export const FAILURES_FROM = '<!-- What follows is written by: npm run docs:troubleshooting -->'

const BY: Readonly<Record<SeenBy, string>> = {
  machine: '`sealane diagnose`, of a site on that machine as root, of a cluster from anywhere',
  anywhere: '`sealane status` and `sealane diagnose`',
  ends: '`sealane diagnose` of both, with `--all-contexts`, or several of `--site` or `--bundle`',
}

/** The whole document: what is there up to the mark, and the failures. */
export function troubleshootingDocument(present: string): string {
  const mark = present.indexOf(FAILURES_FROM)
  const head = mark < 0 ? `${present.trimEnd()}\n\n` : present.slice(0, mark)
  const sections = Object.entries(FAILURES).map(([title, rows]) =>
    [`### ${title}`, ...rows.map(failureText)].join('\n\n'),
  )
  return `${head}${FAILURES_FROM}\n\n## What the commands name\n\n${INTRODUCTION}\n\n${sections.join('\n\n')}\n`
}

const INTRODUCTION = [
  '`sealane status` and `sealane diagnose` name causes by these codes, the worst first; what follows from a cause stands',
  'below it. Find the code here, or what you notice. [Reasons](reasons.md) has all codes, also those of conditions and',
  'logs.',
].join('\n')

function failureText({ symptom, code, by }: FailureRow): string {
  const { means, todo } = reasonRow(code)
  const items = [
    `**Code:** [\`${code}\`](reasons.md#${code.toLowerCase()}). ${means}`,
    `**Seen by:** ${BY[by]}.`,
    `**Do:** ${todo}`,
  ]
  return [`#### ${symptom}`, items.map(listItem).join('\n')].join('\n\n')
}
