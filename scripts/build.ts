/**
 * `npm run build`: compiles the product into dist/. It is made beside dist/ and takes its place as a whole, so that
 * nothing of an earlier build stays, and what runs meanwhile never sees half of one.
 */
import { spawnSync } from 'node:child_process'
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '..')
const work = join(root, 'node_modules', '.cache', 'sealane-build')
const [fresh, old, dist] = [join(work, 'fresh'), join(work, 'old'), join(root, 'dist')]
const compiler = join(root, 'node_modules', 'typescript', 'bin', 'tsc')

rmSync(work, { recursive: true, force: true })
mkdirSync(work, { recursive: true })
const { status } = spawnSync(process.execPath, [compiler, '-p', 'tsconfig.build.json', '--outDir', fresh], {
  cwd: root,
  stdio: 'inherit',
})
if (status === 0) takePlace()
else process.exitCode = 1

function takePlace(): void {
  // bin/sealane compares its time with that of the sources.
  writeFileSync(join(fresh, 'built'), '')
  mkdirSync(dist, { recursive: true })
  renameSync(dist, old)
  renameSync(fresh, dist)
  rmSync(work, { recursive: true, force: true })
}
