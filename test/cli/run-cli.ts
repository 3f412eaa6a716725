/** Runs the command line: in this process, as fast as a function call, or as users do, as a process of its own. */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
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

/** The same frame as cli/main.ts, without the process around it. */
export function runCli(args: readonly string[], init: RunCliInit = {}): Promise<CliResult> {
  return startCli(args, init).result
}

export interface RunCliInit {
  /** Empty by default: what this machine has is nobody's target. */
  readonly env?: Readonly<Record<string, string>>
  /** Absent: there is none. */
  readonly terminal?: Terminal
}

export interface StartedCli {
  readonly result: Promise<CliResult>
  /** Ctrl-C. */
  stop(): void
  /** What it has said on standard error so far. */
  remarks(): string
  /** What it has said on standard output so far. */
  answers(): string
  /**
   * Resolves with the match as soon as standard error has it, however long that takes; rejects when the command ends
   * without.
   */
  remarked(what: RegExp): Promise<RegExpExecArray>
}

/** As runCli, and goes on beside the test. */
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
  /** All of standard input. */
  readonly input?: string
  readonly cwd?: string
  /** Leaves root first; `reads` are files besides the program that must be readable then. */
  readonly nobody?: { readonly reads: readonly string[] }
  /** Nobody reads standard output. */
  readonly closeStdout?: boolean
}

/** Runs bin/sealane to its end; it is killed after `deadlineMs`. */
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

/** A process that goes on; killed when the test ends, or the process of the test, if it is still there. */
export function spawnServing(t: Test, args: readonly string[]): ChildProcess & { readonly said: () => string } {
  const child = spawnRaw(args, { input: '' })
  let text = ''
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
  child.stdout?.resume()
  // A test file whose time is up comes to no teardown.
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

/** What the runner of the tests keeps of compiled sources: with it a start takes a third of the processor time. */
const { NODE_COMPILE_CACHE } = process.env
export const COMPILED = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE }

function spawnRaw(args: readonly string[], { env, cwd, nobody }: SpawnInit): ChildProcess {
  const options: SpawnOptions = {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], HOME: '/nonexistent', ...COMPILED, ...env },
    ...(cwd === undefined ? {} : { cwd }),
  }
  const who = nobody === undefined ? [] : asNobody([LAUNCHER, ...nobody.reads])
  // The test runner adds itself to every Node that is started; users have no such thing.
  return spawn('/usr/bin/env', ['-u', 'NODE_OPTIONS', ...who, LAUNCHER, ...args], options)
}
