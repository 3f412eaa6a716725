/**
 * `npm run build`: compiles the product into dist/. `SEALANE_IMAGE=REGISTRY/NAME[:TAG]` says which image it installs
 * where no flag says one; without it, that of package.json. It is made beside dist/ and takes its place as a whole, so
 * that nothing of an earlier build stays, and what runs meanwhile never sees half of one.
 */
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { addPage, compileProduct } from './compile-product.ts'

const root = join(import.meta.dirname, '..')
const work = join(root, 'node_modules', '.cache', 'sealane-build')
const [fresh, old, dist] = [join(work, 'fresh'), join(work, 'old'), join(root, 'dist')]

rmSync(work, { recursive: true, force: true })
mkdirSync(work, { recursive: true })
if (compileProduct(fresh) && addPage(fresh)) takePlace()
else process.exitCode = 1

function takePlace(): void {
  // bin/sealane compares its time with that of the sources.
  writeFileSync(join(fresh, 'built'), '')
  mkdirSync(dist, { recursive: true })
  renameSync(dist, old)
  renameSync(fresh, dist)
  rmSync(work, { recursive: true, force: true })
}
