/** Programs that make an image, and which Debian package has each. No program is run through a shell. */
import { spawnSync } from 'node:child_process'
import { missingPackages } from '../install-system-packages.ts'

export interface RunInit {
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  readonly input?: Buffer
}

/** Throws with what it said on stderr when it does not end with 0. Gives its stdout. */
export function run(program: string, args: readonly string[], { cwd, env, input }: RunInit = {}): Buffer {
  const done = spawnSync(program, args, {
    cwd,
    input,
    env: { ...process.env, ...env },
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    maxBuffer: 2 ** 30,
  })
  if (done.error !== undefined) throw new Error(`${program}: ${done.error.message}`)
  if (done.status === 0) return done.stdout
  const said = done.stderr.toString().trim().split('\n').slice(-20).join('\n')
  throw new Error(`${program} ${args.slice(0, 3).join(' ')} ended with ${done.status ?? 'a signal'}:\n${said}`)
}

/** Whether it ends with 0. */
export function succeeds(program: string, args: readonly string[]): boolean {
  return spawnSync(program, args, { stdio: 'ignore' }).status === 0
}

/** Throws with the command to type where something is missing: nothing is installed behind anybody's back. */
export function requireImageTools(): void {
  const missing = missingPackages('image')
  if (missing.length === 0) return
  throw new Error(`missing programs; run as root: apt-get update && apt-get install -y ${missing.join(' ')}`)
}
