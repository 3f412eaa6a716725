/**
 * The command line as a user of a test cluster runs it: a process of its own, with its two outputs and how long it
 * took.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { ROOT } from '../../support/source-tree.ts'

export interface CommandResult {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
  readonly ms: number
}

export interface RunningCommand {
  readonly process: ChildProcess
  /** What it has said so far on stderr. */
  said(): string
  /** The same on stdout. */
  answered(): string
  /** Resolves at its end, whatever its code. */
  readonly result: Promise<CommandResult>
}

const CLI = join(ROOT, 'bin/sealane')
const DEADLINE_MS = 420_000

type Env = Readonly<Record<string, string>>

/** Starts `sealane …`; `env` is put over this process's. It is killed when it does not end within four minutes. */
export function startSealane(args: readonly string[], env: Env = {}): RunningCommand {
  const began = performance.now()
  // The test runner adds itself to every Node that is started; users have no such thing.
  const child = spawn('/usr/bin/env', ['-u', 'NODE_OPTIONS', CLI, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  })
  const said = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (chunk: string) => (said[name] += chunk))
  }
  const kill = setTimeout(() => child.kill('SIGKILL'), DEADLINE_MS)
  const result = once(child, 'close').then(([code]) => {
    clearTimeout(kill)
    return { code: (code as number | null) ?? -1, ...said, ms: performance.now() - began }
  })
  return { process: child, said: () => said.stderr, answered: () => said.stdout, result }
}

/** Runs it to its end, whatever its code. */
export function trySealane(args: readonly string[], env?: Env): Promise<CommandResult> {
  return startSealane(args, env).result
}

/** Throws with all that it said when its code is not 0. */
export async function sealane(args: readonly string[], env?: Env): Promise<CommandResult> {
  const done = await trySealane(args, env)
  if (done.code === 0) return done
  throw new Error(`sealane ${args.slice(0, 2).join(' ')} ended with ${done.code}:\n${done.stdout}${done.stderr}`)
}
