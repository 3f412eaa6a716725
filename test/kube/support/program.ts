/** A program that a test runs beside itself: it can be killed and started again, and never outlives the test. */
import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, copyFileSync, fstatSync, openSync, readSync, statSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import { atExit } from '../../support/at-exit.ts'

export interface ProgramInit {
  readonly name: string
  /** The executable. */
  readonly path: string
  readonly args: readonly string[]
  /** Working folder; the log `<name>.log` is kept here. */
  readonly directory: string
  /** A named network namespace to run in. Default: the caller's. */
  readonly netns?: string
  readonly env?: NodeJS.ProcessEnv
  /** Runs before every start, to clear away what the last run may have left. */
  readonly prepare?: () => void
}

export interface Program {
  readonly name: string
  /** undefined while it does not run. */
  readonly pid: number | undefined
  /** Starts it; nothing to do while it runs. */
  start(): void
  /** Ends it and waits until it is gone. Default SIGKILL. */
  kill(signal?: NodeJS.Signals): Promise<void>
  /** The end of what it wrote, at most 64 KiB. */
  log(): string
  /** How it ended by itself, such as "ended with 1"; undefined while it runs or when it was killed here. */
  readonly failure: string | undefined
}

/** A log that grows past this is cut: its end is kept in `<name>.log.old`. */
const LOG_BYTES = 16 << 20
const TAIL_BYTES = 64 << 10

const running = new Set<ChildProcess>()
const logs = new Set<string>()

/** Describes a program; start() runs it. */
export function makeProgram(init: ProgramInit): Program {
  const logPath = join(init.directory, `${init.name}.log`)
  let child: ChildProcess | undefined
  let wanted = false
  let failure: string | undefined

  return {
    name: init.name,
    get pid() {
      return child?.pid
    },
    get failure() {
      return failure
    },
    log: () => tail(logPath),
    start() {
      if (child !== undefined) return
      wanted = true
      failure = undefined
      init.prepare?.()
      const started = spawnProgram(init, logPath)
      child = started
      const ended = (how: string): void => {
        running.delete(started)
        child = undefined
        if (wanted) failure = how
      }
      started.once('error', (error) => ended(`did not start: ${error.message}`))
      started.once('exit', (code, signal) => ended(signal === null ? `ended with ${code ?? 0}` : `ended by ${signal}`))
    },
    async kill(signal = 'SIGKILL') {
      wanted = false
      const ending = child
      if (ending?.pid === undefined) return
      // Waiting for it keeps this process alive, although running beside it does not.
      ending.ref()
      const gone = new Promise((resolve) => ending.once('exit', resolve))
      ending.kill(signal)
      await gone
    },
  }
}

function spawnProgram(init: ProgramInit, logPath: string): ChildProcess {
  watchOver()
  logs.add(logPath)
  // The kernel ends the program when this process ends in a way that runs no handler.
  const inside = init.netns === undefined ? [] : ['ip', 'netns', 'exec', init.netns]
  const command = ['--pdeathsig', 'KILL', ...inside, init.path, ...init.args]
  const log = openSync(logPath, 'a')
  try {
    const child = spawn('setpriv', command, {
      cwd: init.directory,
      env: init.env ?? process.env,
      stdio: ['ignore', log, log],
    })
    running.add(child)
    // A test that forgets a program shall end all the same; the exit handler takes the program away.
    child.unref()
    return child
  } finally {
    closeSync(log)
  }
}

/** The last bytes of a file as text; '' when there is none. */
function tail(path: string): string {
  let file: number
  try {
    file = openSync(path, 'r')
  } catch {
    return ''
  }
  try {
    const { size } = fstatSync(file)
    const bytes = Buffer.alloc(Math.min(size, TAIL_BYTES))
    readSync(file, bytes, 0, bytes.length, size - bytes.length)
    return bytes.toString()
  } finally {
    closeSync(file)
  }
}

let watching = false
function watchOver(): void {
  if (watching) return
  watching = true
  atExit('programs', killAll)
  setInterval(() => logs.forEach(cut), 5_000).unref()
}

function killAll(): void {
  for (const child of running) child.kill('SIGKILL')
}

// The program appends, so it goes on at the start of the emptied file.
function cut(path: string): void {
  try {
    if (statSync(path).size < LOG_BYTES) return
    copyFileSync(path, `${path}.old`)
    truncateSync(path)
  } catch {
    // The folder is gone, and the test with it.
    logs.delete(path)
  }
}
