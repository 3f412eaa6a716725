/** From sources to JavaScript: dist/ of a checkout, and what the image has. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

const root = join(import.meta.dirname, '..')
const compiler = join(root, 'node_modules', 'typescript', 'bin', 'tsc')

/** False when the compiler found mistakes, which it has printed. `folder` is made. */
export function compileProduct(folder: string): boolean {
  const { status } = spawnSync(process.execPath, [compiler, '-p', 'tsconfig.build.json', '--outDir', folder], {
    cwd: root,
    // Its findings are no answer of the command that wants the image's name on stdout.
    stdio: ['ignore', 2, 'inherit'],
  })
  return status === 0
}
