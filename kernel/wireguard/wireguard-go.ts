/**
 * The user space WireGuard: one wireguard-go process a device. It puts itself in the background, belongs to no
 * session of ours and lives on when we end, as a kernel device would. Its socket is /var/run/wireguard/NAME.sock.
 */
import { spawn } from 'node:child_process'
import { readdir, readFile, readlink, rm, stat } from 'node:fs/promises'
import type { Clock } from '../../reconcile/clock.ts'
import { favourStarted } from '../../runtime/resources/processor-priority.ts'
import { KernelError } from '../errors.ts'
import { toolEnvironment } from '../run-command.ts'

const SOCKET_FOLDER = '/var/run/wireguard'
const POLL_MS = 20
const START_DEADLINE_MS = 10_000
const END_DEADLINE_MS = 3_000

/** Resolves when the device is there and answers. Throws KernelError MISSING_TOOL, TIMEOUT, EPERM or UNKNOWN. */
export async function startWireguardGo(name: string, clock: Clock, signal: AbortSignal): Promise<void> {
  const operation = `wireguard-go ${name}`
  const said = await launch(name, operation, signal)
  // The process in front ends once the device and the socket exist; a slow machine may still need a moment.
  const ready = await until(clock, START_DEADLINE_MS, signal, () => exists(socketPath(name)))
  if (!ready)
    throw new KernelError(
      'TIMEOUT',
      operation,
      `no socket after ${START_DEADLINE_MS} ms${said === '' ? '' : `: ${said}`}`,
    )
  for (const pid of await daemonsOf(name)) favourStarted(pid)
}

/** Ends the process of a device that is gone or about to go, and removes what it left. Absent is fine. */
export async function endWireguardGo(name: string, clock: Clock, signal: AbortSignal): Promise<void> {
  // It ends by itself when its device goes. One that does not gets a SIGTERM.
  const ended = async (): Promise<boolean> => (await daemonsOf(name)).length === 0
  if (!(await until(clock, END_DEADLINE_MS, signal, ended))) {
    for (const pid of await daemonsOf(name)) report(pid)
    if (!(await until(clock, END_DEADLINE_MS, signal, ended))) {
      throw new KernelError('TIMEOUT', `end wireguard-go ${name}`, `it runs on after ${END_DEADLINE_MS} ms`)
    }
  }
  await rm(socketPath(name), { force: true })
}

function report(pid: number): void {
  try {
    process.kill(pid, 'SIGTERM')
  } catch {
    // It ended in the meantime; if it may not be signalled, the deadline says so.
  }
}

/** The process numbers of wireguard-go for this device in our network namespace. */
export async function daemonsOf(name: string): Promise<readonly number[]> {
  const ours = await readlink('/proc/self/ns/net')
  const pids = (await readdir('/proc')).filter((entry) => /^\d+$/.test(entry))
  const found = await Promise.all(
    pids.map(async (pid) => ((await isDaemon(pid, name, ours)) ? Number(pid) : undefined)),
  )
  return found.filter((pid) => pid !== undefined)
}

async function isDaemon(pid: string, name: string, namespace: string): Promise<boolean> {
  try {
    const [program = '', ...args] = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0')
    if (!program.endsWith('wireguard-go') || !args.includes(name)) return false
    // A process that has ended, but was not yet taken in by its parent, has no namespace any more.
    return (await readlink(`/proc/${pid}/ns/net`)) === namespace
  } catch {
    return false
  }
}

/** Gives the last line that the program printed before it went to the background. */
function launch(name: string, operation: string, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    // Its own session: Ctrl-C in our terminal must not end the tunnel. `/`: no folder is kept busy.
    const child = spawn('wireguard-go', [name], {
      cwd: '/',
      detached: true,
      env: toolEnvironment(),
      stdio: ['ignore', 'pipe', 'pipe'],
      signal,
      timeout: START_DEADLINE_MS,
    })
    let output = ''
    const collect = (chunk: Buffer): void => {
      output = (output + chunk.toString('utf8')).slice(-4000)
    }
    child.stdout.on('data', collect)
    child.stderr.on('data', collect)
    child.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') {
        reject(
          new KernelError('MISSING_TOOL', operation, 'wireguard-go is not installed: apt-get install wireguard-go', {
            cause: error,
          }),
        )
      } else reject(new KernelError(signal.aborted ? 'EINTR' : 'UNKNOWN', operation, error.message, { cause: error }))
    })
    child.on('close', (code) => {
      const last = lastMessage(output)
      if (code === 0) resolve(last)
      else reject(new KernelError(classify(last), operation, last === '' ? `ended with ${code ?? 'a signal'}` : last))
    })
  })
}

/** Without the banner about kernels that have WireGuard, and without the date. */
function lastMessage(output: string): string {
  const lines = output.split('\n').filter((line) => /ERROR|panic|fatal/i.test(line))
  return (lines.at(-1) ?? '').replace(/^ERROR: \(\S+\) \S+ \S+ /, '').slice(0, 300)
}

function classify(message: string): 'EBUSY' | 'EPERM' | 'ENODEV' | 'UNKNOWN' {
  if (/resource busy/.test(message)) return 'EBUSY'
  if (/not permitted|permission denied/i.test(message)) return 'EPERM'
  return /no such (?:file|device)|does not exist/i.test(message) ? 'ENODEV' : 'UNKNOWN'
}

/** Where the process of this device takes questions, if the device has one. */
export function socketPath(name: string): string {
  return `${SOCKET_FOLDER}/${name}.sock`
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}

async function until(
  clock: Clock,
  deadlineMs: number,
  signal: AbortSignal,
  check: () => Promise<boolean>,
): Promise<boolean> {
  const end = clock.monotonic() + deadlineMs
  for (;;) {
    if (await check()) return true
    if (clock.monotonic() >= end) return false
    try {
      await clock.sleep(POLL_MS, signal)
    } catch (cause) {
      throw new KernelError('EINTR', 'wireguard-go', 'stopped while waiting for it', { cause })
    }
  }
}
