/** Files that a run keeps for people to look at. CI leaves them where they are; git does not know them. */
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../support/source-tree.ts'

/** Empties a folder of `artefacts/`. Returns the path of a file in it. */
export function emptyArtefacts(name: string): (file: string) => string {
  const folder = join(ROOT, 'artefacts', name)
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  return (file) => join(folder, file)
}
