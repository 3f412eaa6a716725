/** A copy of the sources in which mutants are tried, so that the checkout is never changed. */
import { type ChildProcess, spawn } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Names that are not copied: git's own, and those that are linked. */
const LINKED = ['node_modules', 'dist']
const LEFT_OUT = new Set(['.git', '.tap', ...LINKED])

/** A test that is terminated removes what it has made, but a test in an endless loop ignores the signal. */
const GRACE_MS = 5000

export type Ended = 'passed' | 'failed' | 'timed out'

export interface TreeCopy {
  /** The text of a file in the copy. */
  read(file: string): string
  write(file: string, text: string): void
  /** Runs a test file in the copy. After stop(), the results of running and later files mean nothing. */
  run(file: string): Promise<Ended>
  /** Ends the running test files. */
  stop(): void
}

/** Makes `folder` the copy. `seconds` is how long one test file may take. */
export function copyTree(root: string, folder: string, seconds: number): TreeCopy {
  const tree = join(folder, 'tree')
  const temporary = join(folder, 'tmp')
  mkdirSync(temporary, { recursive: true })
  for (const name of readdirSync(root)) {
    if (!LEFT_OUT.has(name)) cpSync(join(root, name), join(tree, name), { recursive: true })
  }
  for (const name of LINKED) if (existsSync(join(root, name))) symlinkSync(join(root, name), join(tree, name))
  let running: ChildProcess | undefined
  // The test has a process group of its own, so that what it has started ends with it.
  const kill = (signal: NodeJS.Signals): void => {
    if (running?.pid !== undefined) killGroup(running.pid, signal)
  }
  let deaf: NodeJS.Timeout | undefined
  const stop = (): void => {
    kill('SIGTERM')
    deaf ??= setTimeout(() => kill('SIGKILL'), GRACE_MS)
  }
  return {
    read: (file) => readFileSync(join(tree, file), 'utf8'),
    write: (file, text) => writeFileSync(join(tree, file), text),
    stop,
    run: (file) =>
      new Promise((resolve, reject) => {
        let late = false
        const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', file], {
          cwd: tree,
          env: environment(temporary),
          stdio: 'ignore',
          detached: true,
        })
        running = child
        const timer = setTimeout(() => {
          late = true
          stop()
        }, seconds * 1000)
        child.on('error', reject)
        child.on('exit', (code) => {
          clearTimeout(timer)
          clearTimeout(deaf)
          deaf = undefined
          kill('SIGKILL')
          running = undefined
          resolve(late ? 'timed out' : code === 0 ? 'passed' : 'failed')
        })
      }),
  }
}

function environment(temporary: string): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^(SEALANE_|TAP|NODE_)/.test(name))
  return { ...Object.fromEntries(kept), TMPDIR: temporary, NODE_COMPILE_CACHE: join(temporary, 'compiled') }
}

function killGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
