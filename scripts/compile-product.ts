/** From sources to JavaScript: dist/ of a checkout, and what the image has. */
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '..')
const compiler = join(root, 'node_modules', 'typescript', 'bin', 'tsc')
const IMAGE = /^[a-z0-9][a-z0-9._/-]*(:[0-9]+\/[a-z0-9._/-]+)?(:[\w][\w.-]{0,127})?$/

/**
 * What SEALANE_IMAGE says: the image that the built product installs where no flag says one. Throws where it is none.
 */
export function imageOfBuild(): string | undefined {
  const image = process.env['SEALANE_IMAGE'] ?? ''
  if (image === '') return undefined
  if (IMAGE.test(image)) return image
  throw new Error(`SEALANE_IMAGE ${JSON.stringify(image)}: expected REGISTRY/NAME or REGISTRY/NAME:TAG`)
}

/**
 * False when the compiler found mistakes, which it has printed. `folder` is made. Throws what imageOfBuild() throws.
 */
export function compileProduct(folder: string): boolean {
  const image = imageOfBuild()
  const { status } = spawnSync(process.execPath, [compiler, '-p', 'tsconfig.build.json', '--outDir', folder], {
    cwd: root,
    // Its findings are no answer of the command that wants the image's name on stdout.
    stdio: ['ignore', 2, 'inherit'],
  })
  if (status === 0 && image !== undefined) nameImage(join(folder, 'package.json'), image)
  return status === 0
}

/** The compiler's copy of package.json is what the built program reads (install/values.ts). */
function nameImage(file: string, image: string): void {
  const project = JSON.parse(readFileSync(file, 'utf8')) as { config: object }
  writeFileSync(file, `${JSON.stringify({ ...project, config: { ...project.config, image } }, undefined, 2)}\n`)
}
