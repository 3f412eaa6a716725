/**
 * Network namespaces, the cables between them and the processes in them, and the promise that all of it goes away.
 * Everything made here carries one name prefix; close() removes it, also what an earlier run was not able to.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, openSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, readdir, rm, rmdir, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { until } from './until.ts'

export interface ExecResult {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

export interface ExecOptions {
  readonly input?: string
  readonly timeoutMs?: number
  readonly env?: Readonly<Record<string, string>>
}

export interface CableEnd {
  readonly namespace: string
  readonly device: string
  /** address/length; absent for an end that goes into a bridge. */
  readonly address?: string
  readonly bridge?: string
}

export interface Daemon {
  readonly name: string
  readonly process: ChildProcess
  readonly logFile: string
}

const WIREGUARD_SOCKETS = '/run/wireguard'
/** Binds a node's own folder over the folder of control sockets, which namespaces would share otherwise. */
const OWN_SOCKETS = 'mount --bind "$0" /run/wireguard && exec "$@"'

export class Lab {
  readonly prefix: string
  readonly directory: string
  readonly #namespaces = new Set<string>()
  readonly #daemons = new Map<string, Daemon>()
  readonly #socketFolderIsOurs: boolean
  #isClosed = false

  private constructor(prefix: string, directory: string, socketFolderIsOurs: boolean) {
    this.prefix = prefix
    this.directory = directory
    this.#socketFolderIsOurs = socketFolderIsOurs
  }

  /** Opens an empty lab after removing what an interrupted run of the same prefix left. */
  static async open(prefix: string): Promise<Lab> {
    await Lab.sweep(prefix)
    const socketFolderIsOurs = !existsSync(WIREGUARD_SOCKETS)
    await mkdir(WIREGUARD_SOCKETS, { recursive: true })
    return new Lab(prefix, await mkdtemp(join(tmpdir(), `${prefix}-lab-`)), socketFolderIsOurs)
  }

  /** Removes whatever carries this prefix: namespaces with their processes, and folders. */
  static async sweep(prefix: string): Promise<void> {
    await removeNamespaces(await namespacesOf(prefix))
    const left = (await readdir(tmpdir())).filter((name) => name.startsWith(`${prefix}-lab-`))
    for (const name of left) await rm(join(tmpdir(), name), { recursive: true, force: true })
  }

  /** The kernel's name of a namespace of this lab. */
  full(namespace: string): string {
    return `${this.prefix}-${namespace}`
  }

  async namespace(name: string, sysctls: Readonly<Record<string, string>> = {}): Promise<void> {
    this.#mustBeOpen()
    this.#namespaces.add(this.full(name))
    await must('ip', ['netns', 'add', this.full(name)])
    await this.ip(name, 'link set lo up')
    for (const [key, value] of Object.entries(sysctls)) await this.must(name, 'sysctl', ['-qw', `${key}=${value}`])
  }

  /**
   * `ip` commands inside a namespace, each written as one would type it; all in one process, the first failure ends it.
   */
  async ip(namespace: string, ...commands: readonly string[]): Promise<string> {
    const input = `${commands.join('\n')}\n`
    return (await must('ip', ['-n', this.full(namespace), '-batch', '-'], { input })).stdout
  }

  async cable(a: CableEnd, b: CableEnd): Promise<void> {
    const far = ['peer', 'name', b.device, 'netns', this.full(b.namespace)]
    await must('ip', ['-n', this.full(a.namespace), 'link', 'add', a.device, 'type', 'veth', ...far])
    for (const end of [a, b]) {
      const bridge = end.bridge === undefined ? [] : [`link set ${end.device} master ${end.bridge}`]
      const address = end.address === undefined ? [] : [`addr add ${end.address} dev ${end.device}`]
      await this.ip(end.namespace, ...bridge, ...address, `link set ${end.device} up`)
    }
  }

  /** What programs in this namespace see as /etc/resolv.conf. */
  async resolvConf(namespace: string, text: string): Promise<void> {
    this.#mustBeOpen()
    const file = `/etc/netns/${this.full(namespace)}/resolv.conf`
    await mkdir(dirname(file), { recursive: true })
    await writeFile(file, text)
  }

  /** Runs a program in a namespace to its end. Never throws for its exit status; -1 is a time-out. */
  exec(namespace: string, command: string, args: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    this.#mustBeOpen()
    return run('ip', ['netns', 'exec', this.full(namespace), ...this.#inNode(namespace), command, ...args], options)
  }

  /** The same, but a status other than 0 is an error that carries what the program said. */
  async must(namespace: string, command: string, args: readonly string[], options: ExecOptions = {}): Promise<string> {
    const done = await this.exec(namespace, command, args, options)
    if (done.status !== 0) throw new Error(failureText(`${namespace}: ${command} ${args.join(' ')}`, done))
    return done.stdout
  }

  /** Starts a program that stays; its output goes to a file of the lab. */
  spawn(namespace: string, name: string, command: string, args: readonly string[]): Daemon {
    this.#mustBeOpen()
    const logFile = join(this.directory, `${name}.log`)
    const log = openSync(logFile, 'a')
    const argv = ['netns', 'exec', this.full(namespace), ...this.#inNode(namespace), command, ...args]
    const child = spawn('ip', argv, { stdio: ['ignore', log, log] })
    closeSync(log)
    const daemon = { name, process: child, logFile }
    this.#daemons.set(name, daemon)
    return daemon
  }

  daemons(): readonly Daemon[] {
    return [...this.#daemons.values()]
  }

  /** All processes of a namespace. */
  async pids(namespace: string): Promise<readonly number[]> {
    return (await pidsOf(this.full(namespace))).map(Number)
  }

  /** Ends a program and waits until it is gone. */
  async stop(name: string, signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const daemon = this.#daemons.get(name)
    this.#daemons.delete(name)
    if (daemon === undefined || daemon.process.exitCode !== null || daemon.process.signalCode !== null) return
    const gone = once(daemon.process, 'exit')
    daemon.process.kill(signal)
    await gone
  }

  /** A machine without power: none of its devices carries anything, and nothing on it had time to say so. */
  async powerOff(namespace: string, devices: readonly string[]): Promise<void> {
    await this.ip(namespace, ...devices.map((device) => `link set ${device} down`))
    const pids = await killAll(this.full(namespace))
    for (const [name, daemon] of this.#daemons) {
      if (pids.includes(String(daemon.process.pid))) this.#daemons.delete(name)
    }
  }

  /** Last lines of a program's log, for error messages. */
  async tail(name: string, lines = 15): Promise<string> {
    const text = await readFile(join(this.directory, `${name}.log`), 'utf8').catch(() => '')
    return text.trimEnd().split('\n').slice(-lines).join('\n')
  }

  /**
   * Takes everything away, also what a story that was interrupted is just making; nothing more can be made after it.
   */
  async close(): Promise<void> {
    this.#isClosed = true
    await removeNamespaces([...this.#namespaces])
    await removeNamespaces(await namespacesOf(this.prefix))
    await rm(this.directory, { recursive: true, force: true })
    if (this.#socketFolderIsOurs) await rmdir(WIREGUARD_SOCKETS).catch(() => undefined)
  }

  /** Makes a folder of the lab the place of a node's WireGuard control sockets. */
  async ownSockets(namespace: string): Promise<void> {
    await mkdir(this.#socketFolder(namespace), { recursive: true })
  }

  #mustBeOpen(): void {
    if (this.#isClosed) throw new Error('the lab is closed')
  }

  #socketFolder(namespace: string): string {
    return join(this.directory, 'wireguard', namespace)
  }

  #inNode(namespace: string): string[] {
    const folder = this.#socketFolder(namespace)
    return existsSync(folder) ? ['sh', '-c', OWN_SOCKETS, folder] : []
  }
}

async function namespacesOf(prefix: string): Promise<string[]> {
  const { stdout } = await run('ip', ['netns', 'list'])
  const names = stdout.split('\n').map((line) => line.split(' ')[0] ?? '')
  return names.filter((name) => name.startsWith(`${prefix}-`))
}

async function removeNamespaces(names: readonly string[]): Promise<void> {
  for (const name of names) {
    await killAll(name)
    await run('ip', ['netns', 'del', name])
    await rm(`/etc/netns/${name}`, { recursive: true, force: true })
  }
  // Only an empty folder goes: it may hold what others put there.
  await rmdir('/etc/netns').catch(() => undefined)
}

/** By the kernel's name of the namespace. */
async function pidsOf(name: string): Promise<readonly string[]> {
  const { stdout } = await run('ip', ['netns', 'pids', name])
  return stdout.split('\n').filter((line) => line !== '')
}

/** All processes of a namespace, by the kernel's name of it. Gives their ids once they have ended. */
async function killAll(name: string): Promise<readonly string[]> {
  const pids = await pidsOf(name)
  for (const pid of pids) killQuietly(Number(pid))
  await Promise.all(pids.map(untilGone))
  return pids
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It ended between being listed and now.
  }
}

/** Until it has ended, be it that nobody has asked how; one that hangs in the kernel is not waited for without end. */
async function untilGone(pid: string): Promise<void> {
  const hasEnded = async (): Promise<boolean> => {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
    return stat === '' || /\) [ZX] /.test(stat)
  }
  await until(`process ${pid} to end`, 5000, hasEnded, 5).catch(() => undefined)
}

/** Runs a program to its end with a bound on time. */
export function run(command: string, args: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
  return new Promise((resolve) => {
    const limits = {
      timeout: options.timeoutMs ?? 30_000,
      maxBuffer: 64 << 20,
      env: { ...process.env, ...options.env },
    }
    const child = execFile(command, args, limits, (error, stdout, stderr) => {
      const status = error === null ? 0 : typeof error.code === 'number' ? error.code : -1
      resolve({ status, stdout, stderr: status === -1 ? `${stderr}${error?.message ?? ''}` : stderr })
    })
    child.stdin?.on('error', () => undefined)
    child.stdin?.end(options.input ?? '')
  })
}

async function must(command: string, args: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
  const done = await run(command, args, options)
  const input = options.input === undefined ? '' : ` <<< ${JSON.stringify(options.input)}`
  if (done.status !== 0) throw new Error(failureText(`${command} ${args.join(' ')}${input}`, done))
  return done
}

function failureText(what: string, done: ExecResult): string {
  const said = (done.stderr.trim() === '' ? done.stdout : done.stderr).trim()
  return `${what}: exit status ${done.status}: ${said.slice(-600)}`
}
