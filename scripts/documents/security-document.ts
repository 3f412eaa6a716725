/** The second half of docs/security.md, from the attacks that are tests. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ATTACKS } from '../../test/hostile/table/all.ts'
import type { AttackRow } from '../../test/hostile/table/row.ts'
import { listItem } from './wrap-text.ts'

const ROOT = join(import.meta.dirname, '..', '..')
/** The hostile tier, and what needs a real API server. */
const FOLDERS = ['test/hostile', 'test/kube']
/** What is before it in the document is written by hand. */
export const TABLES_FROM = '<!-- What follows is written by: npm run docs:security -->'

/** The ids of the rows that each test file tries. */
export function triedIn(): ReadonlyMap<string, readonly string[]> {
  const files = FOLDERS.flatMap((folder) => readdirSync(join(ROOT, folder)).map((name) => `${folder}/${name}`))
  return new Map(
    files
      .filter((name) => name.endsWith('.test.ts'))
      .map((name) => {
        const text = readFileSync(join(ROOT, name), 'utf8')
        return [name, [...text.matchAll(/\battack\(\s*'([a-z0-9-]+)'/g)].map(([, id = '']) => id)]
      }),
  )
}

/** The whole document: what is there up to the mark, and the attacks. */
export function securityDocument(present: string): string {
  const tried = [...triedIn()]
  const fileOf = (id: string): string => tried.find(([, ids]) => ids.includes(id))?.[0] ?? 'nowhere'
  const sections = ATTACKS.filter(({ rows }) => rows.length > 0).map(({ title, rows }) =>
    [`## ${title}`, ...rows.map((row) => attackText(row, fileOf(row.id)))].join('\n\n'),
  )
  const mark = present.indexOf(TABLES_FROM)
  const head = mark < 0 ? `${present.trimEnd()}\n\n` : present.slice(0, mark)
  return `${head}${TABLES_FROM}\n\n${sections.join('\n\n')}\n`
}

function attackText({ id, tried, holds, against }: AttackRow, file: string): string {
  const items = [
    `**Tried:** ${tried}`,
    `**Holds:** ${holds}`,
    `**Against it:** ${against}`,
    `**Shown by:** \`${file}\``,
  ]
  return [`### ${id}`, '', ...items.map(listItem)].join('\n')
}
