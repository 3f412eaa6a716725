/**
 * What both WireGuard drivers refuse before anything is done. KernelError EINVAL; the value of a key is never in it.
 */
import { InvalidAddressError, parsePrefix } from '../../model/addresses/ip.ts'
import { KernelError } from '../errors.ts'
import type { DeviceConfig, PeerConfig } from './wireguard.ts'

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

/** The name is an argument and a file name: `wg` allows no others. */
export function checkWireguardName(name: string): void {
  if (/^[A-Za-z0-9_=+][A-Za-z0-9_=+.-]{0,14}$/.test(name)) return
  throw new KernelError(
    'EINVAL',
    'wg',
    `device name ${JSON.stringify(name)}: expected 1 to 15 letters, digits or _=+.-`,
  )
}

/** 32 bytes in base64. */
export function isWireguardKey(text: string): boolean {
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
