/** This checkout with another version number, for a machine that was not updated with the others. */
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../../..')
/** Files that no process reads. */
const LEFT_OUT = new Set(['.git', '.ci', 'node_modules', 'test', 'bench', 'docs', 'demo', 'package.json'])

/** Makes it in `folder`, and returns the path of the program. */
export function otherRelease(folder: string, version: string): string {
  mkdirSync(folder, { recursive: true })
  for (const name of readdirSync(ROOT).filter((one) => !LEFT_OUT.has(one))) {
    cpSync(join(ROOT, name), join(folder, name), { recursive: true, preserveTimestamps: true })
  }
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  // The compiled copy has a package.json of its own.
  for (const file of ['package.json', join('dist', 'package.json')].filter((one) => existsSync(join(ROOT, one)))) {
    const own = JSON.parse(readFileSync(join(ROOT, file), 'utf8')) as object
    rmSync(join(folder, file), { force: true })
    writeFileSync(join(folder, file), JSON.stringify({ ...own, version }))
  }
  return join(folder, 'bin', 'sealane')
}
