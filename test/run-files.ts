/**
 * Runs test files, each in a process of its own that prints TAP, a few at a time, and puts what they say together.
 * tap's own runner does the same for twice the processor time (decision 10); the tests are tap's all the same.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { idleSince } from './idle-processors.ts'

const ROOT = join(import.meta.dirname, '..')

/**
 * What Node made of a source file: two hundred test files share most of theirs. Looked up by content; safe to delete.
 */
const COMPILED = join(ROOT, 'node_modules/.cache/compiled')

const GRACE_MS = 10_000

/** A file that has just begun says nothing yet of what it needs: so long nobody joins it. */
const LOOK_MS = 4000
/** Of all processors: what must be idle for one more file. */
const ROOM = 0.3

export interface FilesInit {
  /** How many at once. */
  readonly jobs: number
  /** How many at once while processors are idle. Default: `jobs`. */
  readonly most?: number
  /** The share of the processors that nobody used since it was last called, 0 to 1. Default: as the kernel counts. */
  readonly idle?: () => number
  /** How often `idle` is asked. Default 4 s. */
  readonly lookMs?: number
  /** How long one file may take. */
  readonly seconds: number
  /** How long a file has to end when its time is up, and then again after SIGTERM. Default 10 s. */
  readonly graceMs?: number
  /** Called with each file as it ends. */
  readonly onEnd: (said: FileSaid) => void
}

export interface FileSaid {
  readonly file: string
  /** What it printed: TAP. */
  readonly output: string
  /** What it wrote beside that. */
  readonly errors: string
  /** Why it failed although nothing in its TAP may say so. */
  readonly fault: string | undefined
  readonly ms: number
}

/** Resolves when all have ended, in the order of `files`. Ctrl-C ends those under way, and then it throws. */
export async function runFiles(files: readonly string[], init: FilesInit): Promise<readonly FileSaid[]> {
  const said: FileSaid[] = []
  const running = new Set<ChildProcess>()
  let stopped: string | undefined
  let deaf: NodeJS.Timeout | undefined
  const kill = (signal: NodeJS.Signals): void => running.forEach((child) => void child.kill(signal))
  const stop = (signal: NodeJS.Signals): void => {
    stopped = signal
    waiting.length = 0
    kill('SIGTERM')
    deaf ??= setTimeout(() => kill('SIGKILL'), init.graceMs ?? GRACE_MS)
  }
  const waiting = files.map((file, place) => ({ file, place }))
  const run = async (next: (typeof waiting)[number] | undefined): Promise<boolean> => {
    if (next === undefined) return false
    const one = await runFile(next.file, init, running)
    said[next.place] = one
    init.onEnd(one)
    return true
  }
  const work = async (): Promise<void> => {
    while (await run(waiting.shift()));
  }
  process.on('SIGINT', stop).on('SIGTERM', stop)
  const more: Promise<boolean>[] = []
  const broken = Promise.withResolvers<never>()
  const idle = init.idle ?? idleSince()
  const look = setInterval(() => {
    if (idle() < ROOM || running.size >= (init.most ?? init.jobs)) return
    // From the end: files that take long stand at the beginning, and what is idle is not much.
    const one = run(waiting.pop())
    one.catch(broken.reject)
    more.push(one)
  }, init.lookMs ?? LOOK_MS)
  try {
    const all = Promise.all(Array.from({ length: init.jobs }, work)).then(() => Promise.all(more))
    await Promise.race([all, broken.promise])
  } finally {
    clearInterval(look)
    // What could not be started ends the run: no other file is begun, and none goes on.
    waiting.length = 0
    kill('SIGKILL')
    clearTimeout(deaf)
    process.off('SIGINT', stop).off('SIGTERM', stop)
  }
  if (stopped !== undefined) throw new Error(`the tests were stopped by ${stopped}`)
  return said
}

function runFile(file: string, init: FilesInit, running: Set<ChildProcess>): Promise<FileSaid> {
  const { seconds, graceMs = GRACE_MS } = init
  const started = performance.now()
  // tap ends a test that takes as long by itself, and says which.
  const env = { ...process.env, NODE_COMPILE_CACHE: COMPILED, TAP_TIMEOUT: String(seconds) }
  const args = ['--disable-warning=ExperimentalWarning', file]
  const child = spawn(process.execPath, args, { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'] })
  running.add(child)
  let [output, errors] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text))
  const late = setTimeout(() => child.kill('SIGTERM'), seconds * 1000 + graceMs)
  const tooLate = setTimeout(() => child.kill('SIGKILL'), seconds * 1000 + 2 * graceMs)
  return new Promise((resolve, reject) => {
    const over = (): void => {
      clearTimeout(late)
      clearTimeout(tooLate)
      running.delete(child)
    }
    child.on('error', (error) => {
      over()
      reject(error)
    })
    child.on('close', (code, signal) => {
      over()
      const ended = code === 0 ? undefined : `it ended with ${signal ?? `code ${String(code)}`}`
      const fault = ended ?? (isWhole(output) ? undefined : 'it ended without saying how many tests it ran')
      resolve({ file, output, errors, fault, ms: performance.now() - started })
    })
  })
}

/** A plan at the outermost level, and tap's count behind it, say that nothing broke off. */
function isWhole(output: string): boolean {
  return /^1\.\.\d+/m.test(output) && /^# \{ total: \d+/m.test(output)
}

/** One record of all files, as tap writes it: every file is a subtest. */
export function recordOf(said: readonly FileSaid[]): string {
  const parts = said.map((one, i) => {
    const { file, output, fault, ms } = one
    const inside = output.trimEnd().replace(/^(?=.)/gm, '    ')
    const skip = /^1\.\.0(?: # ?(?:SKIP ?)?(.*))?$/im.exec(output)
    const end = skip === null ? `# time=${ms.toFixed(0)}ms` : `# SKIP ${skip[1] ?? ''}`
    const fate = assertionsOf([one]).failed === 0 ? 'ok' : 'not ok'
    const why = fault === undefined ? '' : `\n  ---\n  ${fault}\n  ...`
    return `# Subtest: ${file}\n${inside}\n${fate} ${i + 1} - ${file} ${end}${why}\n`
  })
  return `TAP version 14\n${parts.join('')}1..${said.length}\n`
}

/** tap's closing line of each file, `# { total: 13, pass: 11, fail: 1, skip: 1 }`, summed up. */
export function assertionsOf(said: readonly FileSaid[]): { passed: number; failed: number } {
  const sum = { passed: 0, failed: 0 }
  for (const { output, fault } of said) {
    const last = [...output.matchAll(/^# \{ total: \d+(?:, pass: (\d+))?(?:, fail: (\d+))?/gm)].at(-1)
    const failed = Number(last?.[2] ?? 0)
    sum.passed += Number(last?.[1] ?? 0)
    sum.failed += fault === undefined ? failed : Math.max(1, failed)
  }
  return sum
}
