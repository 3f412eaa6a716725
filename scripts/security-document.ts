/** The tables of docs/security.md, from the attacks that are tests. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ATTACKS } from '../test/hostile/table/all.ts'

const ROOT = join(import.meta.dirname, '..')
const FOLDER = 'test/hostile'
/** What stands before it in the document is written by hand. */
export const TABLES_FROM = '<!-- The tables below are written by: npm run docs:security -->'

/** The ids of the rows that each test file tries. */
export function triedIn(): ReadonlyMap<string, readonly string[]> {
  const files = readdirSync(join(ROOT, FOLDER)).filter((name) => name.endsWith('.test.ts'))
  return new Map(
    files.map((name) => {
      const text = readFileSync(join(ROOT, FOLDER, name), 'utf8')
      return [`${FOLDER}/${name}`, [...text.matchAll(/\battack\(\s*'([a-z0-9-]+)'/g)].map(([, id = '']) => id)]
    }),
  )
}

/** The whole document: what is there up to the mark, and the tables. */
export function securityDocument(present: string): string {
  const tried = [...triedIn()]
  const fileOf = (id: string): string => tried.find(([, ids]) => ids.includes(id))?.[0] ?? 'nowhere'
  const tables = ATTACKS.filter(({ rows }) => rows.length > 0).map(({ title, rows }) => {
    const lines = rows.map(({ id, tried, holds, against }) =>
      ['', tried, holds, against, `\`${fileOf(id)}\`: ${id}`, '']
        .map((cell) => cell.replaceAll('|', '\\|'))
        .join(' | '),
    )
    const head = ['| What was tried | What holds | What stands against it | Shown by |', '| --- | --- | --- | --- |']
    return [`## ${title}`, '', ...head, ...lines.map((line) => line.trim())].join('\n')
  })
  const mark = present.indexOf(TABLES_FROM)
  const head = mark < 0 ? `${present.trimEnd()}\n\n` : present.slice(0, mark)
  return `${head}${TABLES_FROM}\n\n${tables.join('\n\n')}\n`
}
