/** From sources to JavaScript: dist/ of a checkout, and what the image has. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type BuildOptions, buildSync } from 'esbuild'

const root = join(import.meta.dirname, '..')
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
 * What each command and each part loads is put into few files, packages included: a start costs a third less
 * (decision 80).
 */
const OPTIONS = {
  absWorkingDir: root,
  entryPoints: ['cli/main.ts'],
  outbase: '.',
  chunkNames: 'chunks/[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node24',
  legalComments: 'eof',
  // The first is native, the second is loaded part by part (runtime/metrics/prometheus-metrics.ts). The third is our
  // own and stands in the folder: all files are one folder below it.
  external: ['netlink', 'prom-client', '../package.json'],
  // Packages in the older form ask for Node's modules by this.
  banner: {
    js: "import { createRequire as requireFor } from 'node:module'; const require = requireFor(import.meta.url);",
  },
} as const satisfies BuildOptions

/**
 * False when the sources do not compile: why is printed. `folder` is made. Types are for `npm run check`, not looked at
 * here. Throws what imageOfBuild() throws.
 */
export function compileProduct(folder: string): boolean {
  const image = imageOfBuild()
  try {
    buildSync({ ...OPTIONS, outdir: folder })
  } catch {
    return false
  }
  const project = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { config: object }
  const named = image === undefined ? project : { ...project, config: { ...project.config, image } }
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(named, undefined, 2)}\n`)
  return true
}
