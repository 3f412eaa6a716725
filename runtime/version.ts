/** The version of Sealane. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Read from package.json, which is one folder further up for the compiled copy in dist/. */
export function sealaneVersion(): string {
  const root = [join(import.meta.dirname, '..'), join(import.meta.dirname, '..', '..')]
  const file = root.map((folder) => join(folder, 'package.json')).find((path) => existsSync(path))
  if (file === undefined) throw new Error(`no package.json above ${import.meta.dirname}`)
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version
}
