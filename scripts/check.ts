/**
 * `npm run check`: types, lint, format and conventions beside each other. Prints what those said that found something,
 * then a table; ends with 1 when one of them did.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'

const PARTS = ['lint', 'types', 'format', 'conventions'] as const
const root = join(import.meta.dirname, '..')

interface Outcome {
  readonly part: string
  readonly ok: boolean
  readonly seconds: number
}

/** What it prints is kept until its end, so that two parts never write into each other's lines. */
async function run(part: string): Promise<Outcome> {
  const started = performance.now()
  const child = spawn('npm', ['run', '-s', part], { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  const said: Buffer[] = []
  child.stdout.on('data', (data: Buffer) => said.push(data))
  child.stderr.on('data', (data: Buffer) => said.push(data))
  const ok = await new Promise<boolean>((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => resolve(code === 0))
  })
  if (!ok) process.stdout.write(Buffer.concat(said))
  return { part, ok, seconds: (performance.now() - started) / 1000 }
}

const outcomes = await Promise.all(PARTS.map(run))
for (const { part, ok, seconds } of outcomes) {
  console.log(`${part.padEnd(12)} ${(ok ? 'passed' : 'failed').padEnd(8)} ${seconds.toFixed(1).padStart(5)} s`)
}
process.exitCode = outcomes.every(({ ok }) => ok) ? 0 : 1
