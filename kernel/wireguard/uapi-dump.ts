/**
 * Reads a device of wireguard-go through its socket, by the cross-platform user space protocol of WireGuard
 * (wireguard.com/xplatform, "Configuration Protocol": `get=1`). A start of the `wg` tool takes some ten times as long,
 * and devices are read as often as counters are wanted.
 */
import { createConnection } from 'node:net'
import type { Clock } from '../../reconcile/clock.ts'
import { KernelError } from '../errors.ts'
import { readEndpoint, readPrefixes } from './peer-fields.ts'
import { publicKeyOf } from './wireguard-key.ts'
import type { DeviceState, PeerState } from './wireguard.ts'

const ANSWER_MS = 2000
/** Some 100,000 prefixes. */
const MOST_BYTES = 8 << 20
const MOST_PORT = 0xffff

/**
 * What the process behind the socket at `path` answers; undefined where none does, or none in whole and in time: then
 * the tool says why. Rejects with KernelError UNKNOWN where the answer is not of this protocol.
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

/** The signal lives for longer than this: nothing of the answer, which has the private key, may stay with it. */
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
      // An empty line ends it; the other side waits for the next question.
      if (text.endsWith('\n\n')) end(text)
      else if (text.length > MOST_BYTES) giveUp()
    })
    socket.on('error', giveUp)
    socket.on('close', giveUp)
  })
}

/** Of an answer to `get=1`. The private key in it goes no further than this function. */
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

/** The device's own, and one for each peer, which begins with its public key. */
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

/** Of 32 bytes as 64 hexadecimal digits. */
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
