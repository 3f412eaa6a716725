/**
 * Runs test files in processes that print TAP, a few at a time, each file in a process of its own or many in one, and
 * collects their output. tap's own runner needs twice the processor time (decision 84); the tests themselves use tap.
 */
import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process'
import { join } from 'node:path'
import { idleSince } from './idle-processors.ts'
import { partsOfBatch, readTap } from './tap-record.ts'

const ROOT = join(import.meta.dirname, '..')

/**
 * The cache of what Node compiled from source files, since two hundred test files share most of theirs. It is looked up
 * by content and safe to delete.
 */
const COMPILED = join(ROOT, 'node_modules/.cache/compiled')

const BATCH = join(import.meta.dirname, 'run-batch.ts')
const FIRST = join(import.meta.dirname, 'use-error-domain.ts')
/** Tests allocate a lot that is soon garbage; with more room for it, a collection has less to copy. */
const YOUNG = '--max-semi-space-size=64'

/** The environment variable of a process of many files (run-batch.ts), as JSON. */
export interface Batch {
  /** How many files there are for all processes together. */
  readonly files: number
  /** How many seconds one file may take. */
  readonly seconds: number
}

/** The message by which such a process requests another file; tap sends messages of its own. */
export const NEXT = 'next file'

/** The answer to that message. */
export interface NextFile {
  /** The path from the root. Absent: no file is left. */
  readonly file?: string
}

const GRACE_MS = 10_000

/** A file that has just begun has not shown its load yet, so for this time no other file is added. */
const LOOK_MS = 4000
/** The share of all processors that must be idle before one more file begins. */
const ROOM = 0.3

export interface FilesInit {
  /** How many processes run at once. */
  readonly jobs: number
  /**
   * The number of processes that share all files: each takes the next file when it has ended one. Default: each file
   * has a process of its own.
   */
  readonly batches?: number | undefined
  /** How many processes run at once while processors are idle. Default: `jobs`. */
  readonly most?: number
  /** The idle share of the processors since its last call, from 0 to 1. Default: as the kernel counts. */
  readonly idle?: () => number
  /** The interval at which `idle` is called. Default: 4 s. */
  readonly lookMs?: number
  /** How many seconds one file may take. */
  readonly seconds: number
  /** How long a file may take to end when its time is up, and then again after SIGTERM. Default: 10 s. */
  readonly graceMs?: number
  /** Is called with each file when it ends. */
  readonly onEnd: (said: FileSaid) => void
}

export interface FileSaid {
  readonly file: string
  /** The file's standard output, which is TAP. */
  readonly output: string
  /** The file's standard error. */
  readonly errors: string
  /** Why the file failed although nothing in its TAP may say so. */
  readonly fault: string | undefined
  readonly ms: number
}

/** Resolves when all have ended, in the order of `files`. Ctrl-C ends the running ones, and then it throws. */
export async function runFiles(files: readonly string[], init: FilesInit): Promise<readonly FileSaid[]> {
  const said: FileSaid[] = []
  const running = new Set<ChildProcess>()
  let stopped: string | undefined
  let deaf: NodeJS.Timeout | undefined
  const kill = (signal: NodeJS.Signals): void => running.forEach((child) => void child.kill(signal))
  const stop = (signal: NodeJS.Signals): void => {
    stopped = signal
    nothingMore()
    kill('SIGTERM')
    deaf ??= setTimeout(() => kill('SIGKILL'), init.graceMs ?? GRACE_MS)
  }
  const { batches } = init
  const left = batches === undefined ? [] : [...files]
  const waiting: (() => Promise<readonly FileSaid[]>)[] =
    batches === undefined
      ? files.map((file) => () => runFile(file, init, running))
      : Array.from({ length: Math.min(batches, files.length) }, () => () => runBatch(left, files.length, init, running))
  const nothingMore = (): void => {
    waiting.length = 0
    left.length = 0
  }
  const report = (one: FileSaid): void => {
    said[files.indexOf(one.file)] = one
    init.onEnd(one)
  }
  const run = async (next: (typeof waiting)[number] | undefined): Promise<boolean> => {
    if (next === undefined) return false
    for (const one of await next()) report(one)
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
    // Files are taken from the end: long files stand at the beginning, and the idle share is small.
    const one = run(waiting.pop())
    one.catch(broken.reject)
    more.push(one)
  }, init.lookMs ?? LOOK_MS)
  try {
    const all = Promise.all(Array.from({ length: init.jobs }, work)).then(() => Promise.all(more))
    await Promise.race([all, broken.promise])
    for (const file of left) report({ file, output: '', errors: '', fault: 'all processes ended before it', ms: 0 })
  } finally {
    clearInterval(look)
    // A file that could not be started ends the run: no other file begins, and the running ones are killed.
    nothingMore()
    kill('SIGKILL')
    clearTimeout(deaf)
    process.off('SIGINT', stop).off('SIGTERM', stop)
  }
  if (stopped !== undefined) throw new Error(`the tests were stopped by ${stopped}`)
  return said
}

async function runFile(file: string, init: FilesInit, running: Set<ChildProcess>): Promise<readonly FileSaid[]> {
  const { code, ...ended } = await spawnTests([file], {}, init, running)
  const fault = code ?? (isWhole(ended.output) ? undefined : 'it ended without saying how many tests it ran')
  return [{ file, fault, ...ended }]
}

/**
 * Runs the remaining files one after the other, until other processes have taken them all. The files are in the order
 * of their folders.
 */
async function runBatch(
  left: string[],
  files: number,
  init: FilesInit,
  running: Set<ChildProcess>,
): Promise<readonly FileSaid[]> {
  const taken: string[] = []
  const next = (): NextFile => {
    const file = left.shift()
    if (file === undefined) return {}
    taken.push(file)
    return { file }
  }
  const batch: Batch = { files, seconds: init.seconds }
  const env = { SEALANE_TEST_BATCH: JSON.stringify(batch) }
  const ended = await spawnTests([BATCH], env, init, running, next)
  // No other process would report this failure, because the others take its share of files.
  if (taken.length === 0 && ended.code !== undefined)
    throw new Error(`a process for test files failed before its first one: ${ended.code}\n${ended.errors}`)
  return saidInBatch(taken, ended)
}

/** If a process fails although none of its files did, the failure counts against the last of them. */
function saidInBatch(files: readonly string[], { output, errors, code }: Ended): readonly FileSaid[] {
  const parts = partsOfBatch(output)
  const isBad = [...parts.values()].some(({ isOk }) => isOk !== true)
  return files.map((file, i) => {
    const part = parts.get(file)
    if (part === undefined) return { file, output: '', errors, fault: 'its process ended before it', ms: 0 }
    const afterAll = code !== undefined && !isBad && i === files.length - 1 ? `its process failed: ${code}` : undefined
    const inIt = part.isOk === undefined ? `its process ended in it: ${code ?? 'with code 0'}` : undefined
    const fault = inIt ?? (part.isOk === false ? 'it failed beside others in one process' : afterAll)
    return { file, output: part.output, errors: fault === undefined ? '' : errors, fault, ms: part.ms }
  })
}

interface Ended extends Pick<FileSaid, 'output' | 'errors' | 'ms'> {
  /** The exit code or the signal, if it means a failure. */
  readonly code: string | undefined
}

function spawnTests(
  words: readonly string[],
  more: NodeJS.ProcessEnv,
  { seconds, graceMs = GRACE_MS }: FilesInit,
  running: Set<ChildProcess>,
  /**
   * Returns the next file of the process. If it is given, the time limit restarts whenever the process prints
   * something.
   */
  next?: () => NextFile,
): Promise<Ended> {
  const started = performance.now()
  // tap itself ends a test that takes so long, and names it.
  const env = { ...process.env, NODE_COMPILE_CACHE: COMPILED, TAP_TIMEOUT: String(seconds), ...more }
  const args = ['--disable-warning=ExperimentalWarning', YOUNG, '--import', FIRST, ...words]
  const stdio: StdioOptions = ['ignore', 'pipe', 'pipe', ...(next === undefined ? [] : (['ipc'] as const))]
  const child = spawn(process.execPath, args, { cwd: ROOT, env, stdio })
  running.add(child)
  let [output, errors] = ['', '']
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    output += text
    if (next === undefined) return
    late.refresh()
    tooLate.refresh()
  })
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (errors += text))
  // A process that has ended meanwhile needs no answer, so a failure to send one is ignored.
  child.on('message', (asked: unknown) => {
    if (asked === NEXT) child.send(next?.() ?? {}, () => undefined)
  })
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
      resolve({ output, errors, code: ended, ms: performance.now() - started })
    })
  })
}

/** A plan at the outermost level, with tap's count after it, shows that the output is complete. */
function isWhole(output: string): boolean {
  return /^1\.\.\d+/m.test(output) && /^# \{ total: \d+/m.test(output)
}

export interface Counts {
  readonly passed: number
  readonly failed: number
  readonly skipped: number
}

/** The cases of these files. A file that failed although none of its cases did counts as one failure. */
export function countsOf(said: readonly FileSaid[]): Counts {
  const sum = { passed: 0, failed: 0, skipped: 0 }
  for (const { output, fault } of said) {
    const states = readTap(output).cases.map(({ state }) => state)
    for (const state of states) sum[state] += 1
    if (fault !== undefined && !states.includes('failed')) sum.failed += 1
  }
  return sum
}
