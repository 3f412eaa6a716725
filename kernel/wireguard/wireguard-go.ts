/**
 * Runs WireGuard in user space, with one wireguard-go process for each device, and reads devices through its socket,
 * /var/run/wireguard/NAME.sock. The process runs in the background in a session of its own. It goes on when this
 * process ends, as a kernel device would.
 */
import { spawn } from 'node:child_process'
import { readFile, readdir, readlink, rm, stat } from 'node:fs/promises'
import { createConnection } from 'node:net'
import type { Clock } from '../../reconcile/reconcile.ts'
import { favourStarted } from '../../runtime/runtime.ts'
import { KernelError, toolEnvironment } from '../kernel.ts'
import { readEndpoint, readPrefixes } from './wg-text.ts'
import { type DeviceState, type PeerState, publicKeyOf } from './wireguard-device.ts'

const SOCKET_FOLDER = '/var/run/wireguard'
const POLL_MS = 20
const START_DEADLINE_MS = 10_000
const END_DEADLINE_MS = 3_000

/**
 * Resolves when the device exists and its socket is there. Throws KernelError MISSING_TOOL, TIMEOUT, EPERM or UNKNOWN.
 */
export async function startWireguardGo(name: string, clock: Clock, signal: AbortSignal): Promise<void> {
  const operation = `wireguard-go ${name}`
  const said = await launch(name, operation, signal)
  // The foreground process ends once the device and the socket exist. A slow machine may need a moment longer.
  const ready = await until(clock, START_DEADLINE_MS, signal, () => exists(socketPath(name)))
  if (!ready)
    throw new KernelError(
      'TIMEOUT',
      operation,
      `no socket after ${START_DEADLINE_MS} ms${said === '' ? '' : `: ${said}`}`,
    )
  for (const pid of await daemonsOf(name)) favourStarted(pid)
}

/** Ends the process of a device that is gone or about to go, and removes its socket. Does nothing if there is none. */
export async function endWireguardGo(name: string, clock: Clock, signal: AbortSignal): Promise<void> {
  // The process ends by itself when its device is removed. If it does not, it gets a SIGTERM.
  const ended = async (): Promise<boolean> => (await daemonsOf(name)).length === 0
  if (!(await until(clock, END_DEADLINE_MS, signal, ended))) {
    for (const pid of await daemonsOf(name)) report(pid)
    if (!(await until(clock, END_DEADLINE_MS, signal, ended))) {
      throw new KernelError('TIMEOUT', `end wireguard-go ${name}`, `still running after ${END_DEADLINE_MS} ms`)
    }
  }
  await rm(socketPath(name), { force: true })
}

function report(pid: number): void {
  try {
    process.kill(pid, 'SIGTERM')
  } catch {
    // The process has ended in the meantime. If it may not be signalled, the deadline reports that.
  }
}

/** Returns the process ids of wireguard-go for this device in our network namespace. */
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
    // A process that has ended, but that its parent has not reaped, no longer has a namespace.
    return (await readlink(`/proc/${pid}/ns/net`)) === namespace
  } catch {
    return false
  }
}

/** Returns the last error line that the program printed before it went to the background. */
function launch(name: string, operation: string, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    // A session of its own: Ctrl-C in our terminal must not end the tunnel. `/` keeps no folder in use.
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

/** Leaves out the banner about kernels with WireGuard, and the date. */
function lastMessage(output: string): string {
  const lines = output.split('\n').filter((line) => /ERROR|panic|fatal/i.test(line))
  return (lines.at(-1) ?? '').replace(/^ERROR: \(\S+\) \S+ \S+ /, '').slice(0, 300)
}

function classify(message: string): 'EBUSY' | 'EPERM' | 'ENODEV' | 'UNKNOWN' {
  if (/resource busy/.test(message)) return 'EBUSY'
  if (/not permitted|permission denied/i.test(message)) return 'EPERM'
  return /no such (?:file|device)|does not exist/i.test(message) ? 'ENODEV' : 'UNKNOWN'
}

/** Returns the path of the socket on which the process of this device answers, if it exists. */
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

// Reads a device of wireguard-go through its socket, with the cross-platform user-space protocol of WireGuard
// (wireguard.com/xplatform, "Configuration Protocol": `get=1`). Starting the `wg` tool takes about ten times as long,
// and devices are read each time counters are needed.

const ANSWER_MS = 2000
/** Enough for about 100,000 prefixes. */
const MOST_BYTES = 8 << 20
const MOST_PORT = 0xffff

/**
 * Returns what the process behind the socket at `path` answers. Undefined if there is no complete answer in time: the
 * tool then reports why. Rejects with KernelError UNKNOWN if the answer does not follow the protocol.
 */
export async function readByUapi(
  name: string,
  path: string,
  clock: Pick<Clock, 'setTimer'>,
  signal?: AbortSignal,
): Promise<DeviceState | undefined> {
  const answer = signal?.aborted === true ? undefined : await ask(path, clock, signal)
  return answer === undefined ? undefined : parseUapi(name, answer)
}

/** The signal outlives this call, so it must not keep a reference to the answer, which contains the private key. */
function ask(
  path: string,
  clock: Pick<Clock, 'setTimer'>,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  return new Promise((resolve) => {
    let text = ''
    const socket = createConnection({ path })
    const end = (answer: string | undefined): void => {
      cancel()
      signal?.removeEventListener('abort', giveUp)
      socket.destroy()
      text = ''
      resolve(answer)
    }
    const giveUp = (): void => end(undefined)
    const cancel = clock.setTimer(ANSWER_MS, giveUp)
    signal?.addEventListener('abort', giveUp, { once: true })
    socket.setEncoding('latin1')
    socket.on('connect', () => socket.write('get=1\n\n'))
    socket.on('data', (part: string) => {
      text += part
      // An empty line ends the answer. The process then waits for the next request.
      if (text.endsWith('\n\n')) end(text)
      else if (text.length > MOST_BYTES) giveUp()
    })
    socket.on('error', giveUp)
    socket.on('close', giveUp)
  })
}

/**
 * Parses an answer to `get=1`. The private key in it does not leave this function. Undefined if the answer is
 * incomplete or an error.
 */
export function parseUapi(name: string, answer: string): DeviceState | undefined {
  const lines = answer.split('\n').filter((line) => line !== '')
  if (lines.pop() !== 'errno=0') return undefined
  const [own, ...others] = sections(name, lines)
  const [listenPort, mark] = [own?.get('listen_port')?.[0] ?? '0', own?.get('fwmark')?.[0] ?? '0']
  const secret = own?.get('private_key')?.[0] ?? ''
  const peers = others.map((fields) => peerOf(name, fields))
  return {
    name,
    publicKey: /^0*$/.test(secret) ? '' : publicKeyOf(base64Of(name, secret)),
    listenPort: wholeNumber(name, listenPort, MOST_PORT),
    ...(mark === '0' ? {} : { mark: wholeNumber(name, mark, 0xffffffff) }),
    peers: peers.sort((a, b) => (a.publicKey < b.publicKey ? -1 : 1)),
  }
}

type Fields = ReadonlyMap<string, readonly string[]>

/** Returns the fields of the device, then the fields of each peer, which begin with its public key. */
function sections(name: string, lines: readonly string[]): Fields[] {
  const all = [new Map<string, string[]>()]
  for (const line of lines) {
    const at = line.indexOf('=')
    if (at < 1) throw notOfProtocol(name)
    const [key, value] = [line.slice(0, at), line.slice(at + 1)]
    if (key === 'public_key') all.push(new Map<string, string[]>())
    const last = all.at(-1)
    const before = last?.get(key)
    if (before === undefined) last?.set(key, [value])
    else before.push(value)
  }
  return all
}

function peerOf(name: string, fields: Fields): PeerState {
  const number = (key: string, most = Number.MAX_SAFE_INTEGER): number =>
    wholeNumber(name, fields.get(key)?.[0] ?? '0', most)
  const endpoint = fields.get('endpoint')?.[0]
  const seconds = number('last_handshake_time_sec')
  return {
    publicKey: base64Of(name, fields.get('public_key')?.[0] ?? ''),
    ...(endpoint === undefined ? {} : { endpoint: understood(name, () => readEndpoint(endpoint)) }),
    allowedIps: understood(name, () => readPrefixes(fields.get('allowed_ip') ?? [])),
    keepaliveSeconds: number('persistent_keepalive_interval', MOST_PORT),
    ...(seconds === 0 ? {} : { lastHandshakeMs: seconds * 1000 }),
    rxBytes: number('rx_bytes'),
    txBytes: number('tx_bytes'),
  }
}

/** Converts 32 bytes from 64 hexadecimal digits to base64. */
function base64Of(name: string, hex: string): string {
  if (!/^[0-9a-f]{64}$/i.test(hex)) throw notOfProtocol(name)
  return Buffer.from(hex, 'hex').toString('base64')
}

function wholeNumber(name: string, text: string, most: number): number {
  if (!/^\d{1,20}$/.test(text) || Number(text) > most) throw notOfProtocol(name)
  return Number(text)
}

function understood<T>(name: string, read: () => T): T {
  try {
    return read()
  } catch {
    throw notOfProtocol(name)
  }
}

function notOfProtocol(name: string): KernelError {
  return new KernelError('UNKNOWN', `read ${name}`, 'expected the user space protocol of WireGuard')
}
