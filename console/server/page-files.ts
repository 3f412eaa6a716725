/** The files of the built page, in memory: what is not in this list is not served. */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { extname, join, resolve } from 'node:path'
import { UserError } from '../../runtime/runtime.ts'

export interface PageFile {
  readonly type: string
  readonly body: Buffer
}

/** By path: `/` and `/assets/page-x1y2.js`. */
export type PageFiles = ReadonlyMap<string, PageFile>

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}

/** In dist/, all files are one folder below it; a checkout that runs its sources has it at its root. */
const FOLDERS = ['../console-page', '../../dist/console-page']

/** Throws UserError if the page was not built. */
export function readPageFiles(folders: readonly string[] = FOLDERS): PageFiles {
  const folder = folders
    .map((name) => resolve(import.meta.dirname, name))
    .find((path) => existsSync(join(path, 'index.html')))
  if (folder === undefined) {
    throw new UserError('the page of the console is not built', { hint: 'build it: npm run build' })
  }
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  return new Map(
    names.flatMap((name): readonly (readonly [string, PageFile])[] => {
      const type = TYPES[extname(name)]
      if (type === undefined) return []
      const path = name === 'index.html' ? '/' : `/${name.replaceAll('\\', '/')}`
      return [[path, { type, body: readFileSync(join(folder, name)) }]]
    }),
  )
}
