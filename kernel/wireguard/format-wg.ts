/** Peers as the text that `wg syncconf` reads. Holds no secret: the private key stays in its file. */
import { formatAddressPort } from '../../model/addresses/address-port.ts'
import type { DeviceConfig, PeerConfig } from './wireguard.ts'

/** Peers in the order of their keys. */
export function formatDevice(config: DeviceConfig): string {
  const peers = [...config.peers].sort((a, b) => (a.publicKey < b.publicKey ? -1 : 1))
  return `${formatInterface(config)}${peers.map((peer) => `\n${formatPeer(peer)}`).join('')}`
}

/** The section of the device itself, without its key. */
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
