/** Reads `wg show DEVICE dump`. Its first field is the private key, which goes no further than this function. */
import { type AddressPort, parseAddressPort } from '../../model/addresses/address-port.ts'
import { usualPrefix } from '../route/address-text.ts'
import { KernelError } from '../errors.ts'
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
    ...(endpoint === '(none)' ? {} : { endpoint: readEndpoint(name, endpoint) }),
    allowedIps: allowedIps === '(none)' ? [] : readPrefixes(name, allowedIps),
    keepaliveSeconds: keepalive === 'off' ? 0 : Number(keepalive),
    ...(seconds === 0 ? {} : { lastHandshakeMs: seconds * 1000 }),
    rxBytes: Number(rx),
    txBytes: Number(tx),
  }
}

/** The zone of a link-local address is left out: such a peer is reported, and never called from here. */
function readEndpoint(name: string, text: string): AddressPort {
  try {
    return parseAddressPort(text.replace(/%[^\]]*/, ''), 'endpoint', { allowZero: true })
  } catch {
    throw notADump(name)
  }
}

function readPrefixes(name: string, text: string): readonly string[] {
  try {
    return text.split(',').map(usualPrefix).sort()
  } catch {
    throw notADump(name)
  }
}

function notADump(name: string): KernelError {
  return new KernelError('UNKNOWN', `wg show ${name} dump`, 'expected tab-separated fields of a device and its peers')
}
