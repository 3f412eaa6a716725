/** Peers as the text that `wg syncconf` reads. Holds no secret: the private key stays in its file. */
import type { DeviceConfig, PeerConfig } from './wireguard.ts'

/** Peers in the order of their keys. */
export function formatDevice(config: DeviceConfig): string {
  const peers = [...config.peers].sort((a, b) => (a.publicKey < b.publicKey ? -1 : 1))
  return `[Interface]\nListenPort = ${config.listenPort}\n${peers.map((peer) => `\n${formatPeer(peer)}`).join('')}`
}

export function formatPeer(peer: PeerConfig): string {
  return (
    `[Peer]\nPublicKey = ${peer.publicKey}\n` +
    (peer.endpoint === undefined ? '' : `Endpoint = ${peer.endpoint}\n`) +
    `AllowedIPs = ${peer.allowedIps.join(', ')}\n` +
    (peer.keepaliveSeconds === 0 ? '' : `PersistentKeepalive = ${peer.keepaliveSeconds}\n`)
  )
}
