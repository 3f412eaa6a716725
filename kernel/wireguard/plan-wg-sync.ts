/** Plans the arguments of `wg set` that apply a configuration to a device: only the differences. */
import { formatAddressPort, sameAddressPort } from '../../model/addresses/addresses.ts'
import { usualPrefix } from '../route/route.ts'
import type { DeviceConfig, DeviceState, PeerConfig, PeerState } from './wireguard-device.ts'

/** Returns the arguments after `wg set DEVICE`; empty if nothing differs. Peers are sorted by key. */
export function planWgSync(state: DeviceState, config: DeviceConfig): readonly string[] {
  const words: string[] = []
  if (config.listenPort !== 0 && config.listenPort !== state.listenPort)
    words.push('listen-port', String(config.listenPort))
  if ((config.mark ?? 0) !== (state.mark ?? 0)) words.push('fwmark', markText(config.mark ?? 0))
  for (const peer of state.peers) {
    if (!config.peers.some((wanted) => wanted.publicKey === peer.publicKey))
      words.push('peer', peer.publicKey, 'remove')
  }
  const wanted = [...config.peers].sort((a, b) => (a.publicKey < b.publicKey ? -1 : 1))
  for (const peer of wanted) {
    words.push(
      ...planPeer(
        state.peers.find((present) => present.publicKey === peer.publicKey),
        peer,
      ),
    )
  }
  return words
}

/**
 * Returns the arguments after `wg set DEVICE` by which `peer` replaces `from`; both may be the same peer. A different
 * peer is added first and takes the prefixes over: WireGuard waits for its workers when it removes a peer, and packets
 * sent meanwhile would have no route.
 */
export function planReplacement(from: string, peer: PeerConfig): readonly string[] {
  const removal = ['peer', from, 'remove']
  const made = planPeer(undefined, peer)
  return from === peer.publicKey ? [...removal, ...made] : [...made, ...removal]
}

/** In the form that `wg` prints: `0x1073`, or `off`. */
export function markText(mark: number): string {
  return mark === 0 ? 'off' : `0x${mark.toString(16)}`
}

function planPeer(present: PeerState | undefined, peer: PeerConfig): readonly string[] {
  const words: string[] = []
  const isElsewhere = !sameAddressPort(peer.endpoint, present?.endpoint) || peer.setsEndpointAgain === true
  if (peer.endpoint !== undefined && isElsewhere) words.push('endpoint', formatAddressPort(peer.endpoint))
  if (peer.keepaliveSeconds !== (present?.keepaliveSeconds ?? 0))
    words.push('persistent-keepalive', String(peer.keepaliveSeconds))
  const allowedIps = peer.allowedIps.map(usualPrefix).sort().join(',')
  if (allowedIps !== [...(present?.allowedIps ?? [])].sort().join(',')) words.push('allowed-ips', allowedIps)
  return words.length > 0 || present === undefined ? ['peer', peer.publicKey, ...words] : []
}
