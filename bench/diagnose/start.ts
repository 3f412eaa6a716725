/**
 * `npm run bench:start -- [--repeat 15] [--json]`: how long a command takes before its first request: `sealane
 * --version`, and `sealane status` without a cluster, compiled from this checkout. The peer is a bare Node. The figures
 * are medians, after one run that does not count.
 */
import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { compileProduct } from '../../scripts/compile-product.ts'
import { median, progress, round } from '../figures.ts'

const ROOT = join(import.meta.dirname, '..', '..')
/** Packages are found from this folder. */
const PRODUCT = join(ROOT, 'node_modules', '.cache', 'sealane-bench-start')
const MAIN = join(PRODUCT, 'cli', 'main.js')
/** The commands find nothing of this machine: no kubeconfig and no site. */
const ENV = { PATH: process.env['PATH'], HOME: '/nonexistent' }

interface Row {
  readonly args: readonly string[]
  /** The expected exit code. */
  readonly code: number
}

const ROWS: Readonly<Record<string, Row>> = {
  bareNodeMs: { args: ['--eval', '0'], code: 0 },
  versionMs: { args: [MAIN, '--version'], code: 0 },
  statusMs: { args: [MAIN, 'status', '--context', 'nobody'], code: 3 },
}

function main(): void {
  const { values } = parseArgs({ options: { repeat: { type: 'string', default: '15' }, json: { type: 'boolean' } } })
  const repeat = Number(values.repeat)
  if (!Number.isInteger(repeat) || repeat < 1)
    throw new Error(`--repeat ${values.repeat}: expected a whole number from 1`)
  if (!compileProduct(PRODUCT)) throw new Error('the product does not compile')
  const result = Object.fromEntries(Object.entries(ROWS).map(([name, row]) => [name, round(time(row, repeat), 0)]))
  rmSync(PRODUCT, { recursive: true, force: true })
  const text = Object.entries(result).map(([name, ms]) => `${name} ${ms}`)
  progress({ ...result, repeat }, `${text.join(', ')}; medians of ${repeat}`)
}

function time({ args, code }: Row, repeat: number): number {
  const samples: number[] = []
  for (let i = 0; i <= repeat; i += 1) {
    const began = performance.now()
    const { error, status } = spawnSync(process.execPath, args, { env: ENV, stdio: 'ignore' })
    if (error !== undefined) throw error
    if (status !== code) throw new Error(`${args.join(' ')}: it ended with ${String(status)}, expected ${code}`)
    if (i > 0) samples.push(performance.now() - began)
  }
  return median(samples)
}

main()
