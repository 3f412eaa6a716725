/**
 * The interface to the WireGuard devices of this network namespace. Drivers: wg-command.ts (the `wg` tool; it creates
 * the device as a kernel link if the kernel supports WireGuard, else by starting wireguard-go) and fake-wireguard.ts.
 * Compliance: test/compliance/wireguard.ts.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import { type AddressPort, InvalidAddressError, parsePrefix } from '../../model/addresses/addresses.ts'
import { KernelError } from '../kernel.ts'

export interface PeerConfig {
  /** In base64. */
  readonly publicKey: string
  /** If absent, the device keeps the endpoint it has (roaming), or waits for the peer to connect. */
  readonly endpoint?: AddressPort
  /**
   * Sets the endpoint even if the device already has it. The device then forgets the local address from which it sent
   * to this endpoint; the session stays.
   */
  readonly setsEndpointAgain?: true
  /** CIDRs of either family, in canonical form (`fd00::/64`). */
  readonly allowedIps: readonly string[]
  /** In seconds; 0 is off. */
  readonly keepaliveSeconds: number
}

export interface DeviceConfig {
  readonly listenPort: number
  /** Mark of each packet that the device itself sends (SO_MARK). None if 0 or absent. */
  readonly mark?: number
  readonly peers: readonly PeerConfig[]
}

export interface KeyInit {
  readonly privateKeyFile: string
  readonly places: readonly Required<Pick<PeerConfig, 'publicKey' | 'endpoint'>>[]
  /** The change is prepared, then waits for this promise and takes effect at once. Nothing changes if it rejects. */
  readonly after?: Promise<unknown>
  /** Called when everything is prepared, before the wait for `after`. Not called if the preparation fails. */
  readonly onWaiting?: () => void
}

export interface PeerState {
  readonly publicKey: string
  readonly endpoint?: AddressPort
  readonly allowedIps: readonly string[]
  readonly keepaliveSeconds: number
  /** Milliseconds since 1970; absent before the first handshake. */
  readonly lastHandshakeMs?: number
  readonly rxBytes: number
  readonly txBytes: number
}

export interface DeviceState {
  readonly name: string
  readonly publicKey: string
  readonly listenPort: number
  /** See DeviceConfig.mark; absent if there is none. */
  readonly mark?: number
  readonly peers: readonly PeerState[]
}

export type WireguardDriver = 'kernel' | 'userspace'

export interface Wireguard {
  /** Returns the implementation that ensureDevice() uses here. */
  driver(signal?: AbortSignal): Promise<WireguardDriver>
  /**
   * Ensures that the device exists, is up, and has the key in `privateKeyFile`. Returns its state. An existing device
   * of that name keeps its sessions. Throws KernelError.
   */
  ensureDevice(
    name: string,
    init: { readonly privateKeyFile: string; readonly mtu: number },
    signal?: AbortSignal,
  ): Promise<DeviceState>
  /** Undefined if the device does not exist. */
  read(name: string, signal?: AbortSignal): Promise<DeviceState | undefined>
  /** Changes only what differs: sessions of unchanged peers stay. Removes peers that are not in `config`. */
  sync(name: string, config: DeviceConfig, signal?: AbortSignal): Promise<void>
  /**
   * Removes the peer `from` and creates `peer` in one step, with one start of the tool. If both are the same peer, it
   * is created again. Throws KernelError.
   */
  replacePeer(name: string, from: string, peer: PeerConfig, signal?: AbortSignal): Promise<void>
  /** Sets the key of the device, and in the same step the endpoints of existing peers. Throws KernelError. */
  setKey(name: string, init: KeyInit, signal?: AbortSignal): Promise<void>
  /** Removes the device, and with it a user-space process. Does nothing if there is none. */
  deleteDevice(name: string, signal?: AbortSignal): Promise<void>
  /** Returns a new private key and its public key, both in base64. */
  generateKey(): { readonly privateKey: string; readonly publicKey: string }
}

// Checks that both WireGuard drivers make before any change. They throw KernelError EINVAL, which never contains the
// value of a private key.

const KEY = /^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/

export function checkDeviceConfig(name: string, config: DeviceConfig): void {
  const operation = `wg set ${name}`
  if (!Number.isInteger(config.listenPort) || config.listenPort < 0 || config.listenPort > 65535) {
    throw new KernelError('EINVAL', operation, `listen port ${config.listenPort}: expected 0 to 65535`)
  }
  const { mark = 0 } = config
  if (!Number.isInteger(mark) || mark < 0 || mark > 0xffffffff) {
    throw new KernelError('EINVAL', operation, `mark ${mark}: expected 0 to 4294967295`)
  }
  const seen = new Set<string>()
  for (const peer of config.peers) {
    checkPeer(operation, peer)
    if (seen.has(peer.publicKey)) throw new KernelError('EINVAL', operation, `peer ${peer.publicKey} is named twice`)
    seen.add(peer.publicKey)
  }
}

/** The name is an argument and a file name. `wg` allows no other characters. */
export function checkWireguardName(name: string): void {
  if (/^[A-Za-z0-9_=+][A-Za-z0-9_=+.-]{0,14}$/.test(name)) return
  throw new KernelError(
    'EINVAL',
    'wg',
    `device name ${JSON.stringify(name)}: expected 1 to 15 letters, digits or _=+.-`,
  )
}

/** True for 32 bytes in base64. */
function isWireguardKey(text: string): boolean {
  return KEY.test(text)
}

function checkPeer(operation: string, peer: PeerConfig): void {
  if (!isWireguardKey(peer.publicKey)) {
    throw new KernelError(
      'EINVAL',
      operation,
      `public key ${JSON.stringify(peer.publicKey.slice(0, 60))}: expected 32 bytes in base64`,
    )
  }
  if (!Number.isInteger(peer.keepaliveSeconds) || peer.keepaliveSeconds < 0 || peer.keepaliveSeconds > 65535) {
    throw new KernelError('EINVAL', operation, `keepalive ${peer.keepaliveSeconds}: expected 0 to 65535 seconds`)
  }
  const port = peer.endpoint?.port ?? 1
  if (!Number.isInteger(port) || port < 1 || port > 65535) {
    throw new KernelError('EINVAL', operation, `port ${port} of the endpoint: expected 1 to 65535`)
  }
  try {
    for (const prefix of peer.allowedIps) parsePrefix(prefix, 'allowed IPs')
  } catch (error) {
    if (error instanceof InvalidAddressError)
      throw new KernelError('EINVAL', operation, error.message, { cause: error })
    throw error
  }
}

// X25519 keys in the base64 form of WireGuard (RFC 7748), as `wg genkey` and `wg pubkey` print them.

// The fixed head of a PKCS #8 X25519 key (RFC 8410); the 32 key bytes follow.
const PKCS8_HEAD = Buffer.from('302e020100300506032b656e04220420', 'hex')
const KEY_BYTES = 32

export function generateWireguardKey(): { readonly privateKey: string; readonly publicKey: string } {
  const pair = generateKeyPairSync('x25519')
  const secret = pair.privateKey.export({ type: 'pkcs8', format: 'der' }).subarray(-KEY_BYTES)
  const open = pair.publicKey.export({ type: 'spki', format: 'der' }).subarray(-KEY_BYTES)
  return { privateKey: clamp(secret).toString('base64'), publicKey: open.toString('base64') }
}

/** Throws KernelError EINVAL, without the key, if the text is not 32 bytes in base64. */
export function publicKeyOf(privateKey: string): string {
  const bytes = Buffer.from(privateKey.trim(), 'base64')
  if (bytes.length !== KEY_BYTES)
    throw new KernelError('EINVAL', 'wg pubkey', 'the private key is not 32 bytes in base64')
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_HEAD, bytes]), format: 'der', type: 'pkcs8' })
  return createPublicKey(key).export({ type: 'spki', format: 'der' }).subarray(-KEY_BYTES).toString('base64')
}

// Clamps the key as wg stores and prints it (RFC 7748 section 5). The public key is the same either way.
function clamp(secret: Buffer): Buffer {
  const bytes = Buffer.from(secret)
  bytes.writeUInt8((bytes[0] ?? 0) & 248, 0)
  bytes.writeUInt8(((bytes[31] ?? 0) & 127) | 64, 31)
  return bytes
}
