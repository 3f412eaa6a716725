/**
 * `npm run check`: types with lint, format and conventions beside each other, or those of them that are named. Prints
 * what each said that found something, and a line for each; ends with 1 when one of them did.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'

const PARTS = ['types-and-lint', 'format', 'conventions']
const root = join(import.meta.dirname, '..')

interface Outcome {
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
  return { ok, seconds: (performance.now() - started) / 1000 }
}

/** Each as it ends, so that a person who waits sees what there is. */
async function report(part: string): Promise<boolean> {
  const { ok, seconds } = await run(part)
  console.log(`${part.padEnd(14)} ${(ok ? 'passed' : 'failed').padEnd(8)} ${seconds.toFixed(1).padStart(5)} s`)
  return ok
}

const named = process.argv.slice(2)
const unknown = named.filter((part) => !PARTS.includes(part))
if (unknown.length > 0) {
  console.error(`${unknown.join(', ')}: expected ${PARTS.join(', ')}`)
  process.exitCode = 2
} else {
  const outcomes = await Promise.all(PARTS.filter((part) => named.length === 0 || named.includes(part)).map(report))
  process.exitCode = outcomes.every((ok) => ok) ? 0 : 1
}
