/** Reads `wg show DEVICE dump`. Its first field is the private key, which goes no further than this function. */
import { KernelError } from '../errors.ts'
import { readEndpoint, readPrefixes } from './peer-fields.ts'
import type { DeviceState, PeerState } from './wireguard.ts'

/** Throws KernelError UNKNOWN when the text is not a dump. */
export function parseDump(name: string, dump: string): DeviceState {
  const [head = '', ...lines] = dump.split('\n').filter((line) => line !== '')
  const [, publicKey, listenPort, mark] = head.split('\t')
  if (publicKey === undefined || !/^\d+$/.test(listenPort ?? '')) throw notADump(name)
  const peers = lines.map((line) => parsePeer(name, line))
  return {
    name,
    publicKey: publicKey === '(none)' ? '' : publicKey,
    listenPort: Number(listenPort),
    ...(mark === undefined || mark === 'off' ? {} : { mark: Number(mark) }),
    peers: peers.sort((a, b) => (a.publicKey < b.publicKey ? -1 : 1)),
  }
}

function parsePeer(name: string, line: string): PeerState {
  const [publicKey, , endpoint, allowedIps, handshake, rx, tx, keepalive] = line.split('\t')
  if (publicKey === undefined || endpoint === undefined || allowedIps === undefined || keepalive === undefined)
    throw notADump(name)
  const seconds = Number(handshake)
  return {
    publicKey,
    ...(endpoint === '(none)' ? {} : { endpoint: understood(name, () => readEndpoint(endpoint)) }),
    allowedIps: allowedIps === '(none)' ? [] : understood(name, () => readPrefixes(allowedIps.split(','))),
    keepaliveSeconds: keepalive === 'off' ? 0 : Number(keepalive),
    ...(seconds === 0 ? {} : { lastHandshakeMs: seconds * 1000 }),
    rxBytes: Number(rx),
    txBytes: Number(tx),
  }
}

function understood<T>(name: string, read: () => T): T {
  try {
    return read()
  } catch {
    throw notADump(name)
  }
}

function notADump(name: string): KernelError {
  return new KernelError('UNKNOWN', `wg show ${name} dump`, 'expected tab-separated fields of a device and its peers')
}
