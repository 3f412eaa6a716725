/** Runs the command line in this process, as fast as a function call, or as a separate process, as users do. */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Terminal } from '../../cli/context/terminal.ts'
import { parseWith } from '../../cli/context/command-context.ts'
import { buildProgram } from '../../cli/program.ts'
import { runProcess } from '../../runtime/run-process.ts'
import { asNobody } from '../support/as-nobody.ts'
import { atExit } from '../support/at-exit.ts'

export interface CliResult {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

const LAUNCHER = join(import.meta.dirname, '../../bin/sealane')

/** Runs a command in the frame of cli/main.ts, without a process of its own. */
export function runCli(args: readonly string[], init: RunCliInit = {}): Promise<CliResult> {
  return startCli(args, init).result
}

export interface RunCliInit {
  /** The environment; empty by default, because no test may use a cluster that this machine is configured for. */
  readonly env?: Readonly<Record<string, string>>
  /** The terminal; without it, the command has none. */
  readonly terminal?: Terminal
}

export interface StartedCli {
  readonly result: Promise<CliResult>
  /** Sends the signal of Ctrl-C. */
  stop(): void
  /** Returns the standard error so far. */
  remarks(): string
  /** Returns the standard output so far. */
  answers(): string
  /**
   * Resolves with the match as soon as it occurs on standard error, however long that takes. Rejects when the command
   * ends without it.
   */
  remarked(what: RegExp): Promise<RegExpExecArray>
}

/** Starts a command like runCli(), and returns while it runs. */
export function startCli(args: readonly string[], init: RunCliInit = {}): StartedCli {
  const signals = new EventEmitter()
  const remarks = new EventEmitter().setMaxListeners(0)
  const said = { stdout: '', stderr: '' }
  const output = {
    answer: (text: string) => void (said.stdout += text),
    remark: (text: string) => {
      said.stderr += text
      remarks.emit('more')
    },
  }
  const build = (signal: AbortSignal): Promise<void> =>
    parseWith(buildProgram(signal, { signal, output, env: init.env ?? {}, terminal: init.terminal ?? null }), args)
  const before = process.exitCode
  const result = runProcess('sealane', build, { complain: output.remark, signals, exitNow: () => undefined }).then(
    (code) => {
      process.exitCode = before
      return { code, ...said }
    },
  )
  const remarked = (what: RegExp): Promise<RegExpExecArray> => {
    const { promise, resolve, reject } = Promise.withResolvers<RegExpExecArray>()
    const look = (): void => {
      const found = what.exec(said.stderr)
      if (found !== null) resolve(found)
    }
    remarks.on('more', look)
    look()
    result.then(({ code }) => reject(new Error(`it ended with ${code} before it said ${what}: ${said.stderr}`)), reject)
    return promise
  }
  return {
    ...{ result, remarked, stop: () => void signals.emit('SIGINT') },
    ...{ remarks: () => said.stderr, answers: () => said.stdout },
  }
}

export interface SpawnInit {
  readonly env?: Readonly<Record<string, string>>
  /** The whole standard input. */
  readonly input?: string
  readonly cwd?: string
  /**
   * Runs the command as the user `nobody`, not as root. `reads` are files besides the program that this user must be
   * able to read.
   */
  readonly nobody?: { readonly reads: readonly string[] }
  /** Closes the reading end of standard output. */
  readonly closeStdout?: boolean
  /** The file that is the standard output. */
  readonly stdoutTo?: string
}

/** Runs bin/sealane until it ends. The process is killed after one minute. */
export async function spawnCli(args: readonly string[], init: SpawnInit = {}): Promise<CliResult> {
  const child = spawnRaw(args, init)
  const kill = setTimeout(() => child.kill('SIGKILL'), 60_000)
  const said = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (chunk: string) => (said[name] += chunk))
  }
  if (init.closeStdout === true) child.stdout?.destroy()
  child.stdin?.on('error', () => undefined).end(init.input ?? '')
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null]
  clearTimeout(kill)
  if (signal !== null) throw new Error(`sealane ${args.join(' ')}: ended by ${signal}\n${said.stderr}`)
  return { code: code ?? -1, ...said }
}

/**
 * Starts a process that keeps running. It is killed when the test ends, or at the latest when the test process ends.
 */
export function spawnServing(t: Test, args: readonly string[]): ChildProcess & { readonly said: () => string } {
  const child = spawnRaw(args, { input: '' })
  let text = ''
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
  child.stdout?.resume()
  // A test file that exceeds its time limit runs no teardown.
  child.once(
    'close',
    atExit('programs', () => child.kill('SIGKILL')),
  )
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill('SIGKILL')
    await once(child, 'close')
  })
  return Object.assign(child, { said: () => text })
}

/** The compile cache of the test runner. With it, a start takes a third of the processor time. */
const { NODE_COMPILE_CACHE } = process.env
export const COMPILED = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE }

function spawnRaw(args: readonly string[], { env, cwd, nobody, stdoutTo }: SpawnInit): ChildProcess {
  const out = stdoutTo === undefined ? 'pipe' : openSync(stdoutTo, 'w')
  const options: SpawnOptions = {
    stdio: ['pipe', out, 'pipe'],
    env: { PATH: process.env['PATH'], HOME: '/nonexistent', ...COMPILED, ...env },
    ...(cwd === undefined ? {} : { cwd }),
  }
  const who = nobody === undefined ? [] : asNobody([LAUNCHER, ...nobody.reads])
  // The test runner adds itself to every Node through NODE_OPTIONS, which users do not have.
  const child = spawn('/usr/bin/env', ['-u', 'NODE_OPTIONS', ...who, LAUNCHER, ...args], options)
  if (out !== 'pipe') closeSync(out)
  return child
}
