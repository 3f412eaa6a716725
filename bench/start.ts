/**
 * `npm run bench:start -- [--repeat 15] [--json]`: how long a command takes before it asks anybody: `sealane --version`,
 * and `sealane status` where no cluster is named, with the compiled copy of this checkout; beside them a bare Node.
 * Medians, after one run that does not count.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { median, progress, round } from './figures.ts'

const ROOT = join(import.meta.dirname, '..')
const MAIN = join(ROOT, 'dist', 'cli', 'main.js')
/** Nothing of this machine is asked: no kubeconfig, no site. */
const ENV = { PATH: process.env['PATH'], HOME: '/nonexistent' }

const ROWS: Readonly<Record<string, readonly string[]>> = {
  bareNodeMs: ['--eval', '0'],
  versionMs: [MAIN, '--version'],
  statusMs: [MAIN, 'status', '--context', 'nobody'],
}

function main(): void {
  const { values } = parseArgs({ options: { repeat: { type: 'string', default: '15' }, json: { type: 'boolean' } } })
  const repeat = Number(values.repeat)
  if (!Number.isInteger(repeat) || repeat < 1) throw new Error(`--repeat ${values.repeat}: expected a whole number from 1`)
  const result = Object.fromEntries(Object.entries(ROWS).map(([name, args]) => [name, round(time(args, repeat), 0)]))
  const text = Object.entries(result).map(([name, ms]) => `${name} ${ms}`)
  progress({ ...result, repeat }, `${text.join(', ')}; medians of ${repeat}`)
}

function time(args: readonly string[], repeat: number): number {
  const samples: number[] = []
  for (let i = 0; i <= repeat; i += 1) {
    const began = performance.now()
    const { error } = spawnSync(process.execPath, args, { env: ENV, stdio: 'ignore' })
    if (error !== undefined) throw error
    if (i > 0) samples.push(performance.now() - began)
  }
  return median(samples)
}

main()
