/**
 * Formats peers as input for `wg syncconf`, and parses the output of `wg show`. Formatted text holds no secret: the
 * private key stays in its file.
 */
import {
  type AddressPort,
  formatAddressPort,
  formatPrefix,
  parseAddressPort,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { KernelError } from '../kernel.ts'
import type { DeviceConfig, DeviceState, PeerConfig, PeerState } from './wireguard-device.ts'

/** Peers are sorted by key. */
export function formatDevice(config: DeviceConfig): string {
  const peers = [...config.peers].sort((a, b) => (a.publicKey < b.publicKey ? -1 : 1))
  return `${formatInterface(config)}${peers.map((peer) => `\n${formatPeer(peer)}`).join('')}`
}

/** Returns the section of the device, without its key. */
export function formatInterface({ listenPort, mark = 0 }: DeviceConfig): string {
  const markLine = mark === 0 ? '' : `FwMark = 0x${mark.toString(16)}\n`
  return `[Interface]\nListenPort = ${listenPort}\n${markLine}`
}

export function formatPeer(peer: PeerConfig): string {
  return (
    `[Peer]\nPublicKey = ${peer.publicKey}\n` +
    (peer.endpoint === undefined ? '' : `Endpoint = ${formatAddressPort(peer.endpoint)}\n`) +
    `AllowedIPs = ${peer.allowedIps.join(', ')}\n` +
    (peer.keepaliveSeconds === 0 ? '' : `PersistentKeepalive = ${peer.keepaliveSeconds}\n`)
  )
}

// Parses `wg show DEVICE dump`. Its first field is the private key, which does not leave this function.

/** Throws KernelError UNKNOWN if the text is not a dump. */
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

// Parses what WireGuard prints about a peer into the forms of PeerState.

/**
 * Drops the zone of a link-local address: such a peer is reported, but never called from here.
 * Throws InvalidAddressError.
 */
export function readEndpoint(text: string): AddressPort {
  return parseAddressPort(text.replace(/%[^\]]*/, ''), 'endpoint', { allowZero: true })
}

/** The result is sorted. Throws InvalidAddressError. */
export function readPrefixes(texts: readonly string[]): readonly string[] {
  return texts.map((text) => formatPrefix(parsePrefix(text))).sort()
}
