/** Plans the device towards one remote lane number as a WireGuard device with its peers. Pure. */
import { formatAddressPort, laneAddress } from '../../../model/addresses/addresses.ts'
import { CAPABILITY_FOLLOWS_KEYS } from '../../../model/lanes/lanes.ts'
import { LANE_MARK, WIREGUARD_OVERHEAD_IPV4, WIREGUARD_REJECT_AFTER_SECONDS } from '../../../model/model.ts'
import { problem } from '../../../model/reasons/reasons.ts'
import { formatAddress, formatLink } from '../../../kernel/route/route.ts'
import { type DeviceConfig, type PeerConfig, formatInterface, formatPeer } from '../../../kernel/wireguard/wireguard.ts'
import type { CableDevice, CableLink, CablePlan, CableRules } from '../cable-driver.ts'
import { keepaliveSeconds } from '../plan-keepalive.ts'

/** CableDriver.name of each implementation. */
export const driverNames = { kernel: 'wireguard-kernel', userspace: 'wireguard-userspace' } as const

/** A far end's identity is its public key, the only property by which WireGuard distinguishes peers. */
export const wireguardRules: CableRules = {
  overhead: WIREGUARD_OVERHEAD_IPV4,
  sessionMs: WIREGUARD_REJECT_AFTER_SECONDS * 1000,
  endsWithProcess: (driver) =>
    driver === driverNames.userspace ? 'user space WireGuard ends with the gateway process' : undefined,
  probeAddress: laneAddress,
  identityOf: ({ spec }) => spec.publicKey,
  endpointProblem: ({ spec: { publicKey } }) =>
    isPublicKey(publicKey)
      ? undefined
      : `publicKey ${JSON.stringify(publicKey.slice(0, 60))}: expected 32 bytes in base64`,
  nextIdentityOf: ({ spec: { publicKey, nextPublicKey } }) =>
    nextPublicKey !== undefined && nextPublicKey !== publicKey && isPublicKey(nextPublicKey)
      ? nextPublicKey
      : undefined,
  identityTaken: (owner, which) =>
    problem('PublicKeyTaken', `${which === 'next' ? 'nextPublicKey' : 'publicKey'} is already the key of ${owner}`),
  endpointFields: ({ identity }, next) => ({
    publicKey: identity,
    ...(next === undefined || next === identity ? {} : { nextPublicKey: next }),
    capabilities: ['wireguard', CAPABILITY_FOLLOWS_KEYS],
  }),
  plan: planDevice,
}

export interface DevicePlan extends CablePlan {
  readonly config: DeviceConfig
}

/** Peers in the order of the links. Peers without traffic yet have no prefixes. */
export function planDevice(lane: CableDevice): DevicePlan {
  const { behindNat, natLifeSeconds } = lane
  const life = natLifeSeconds === undefined ? {} : { natLifeSeconds }
  const peer = ({ identity, choice, isPublic }: CableLink, allowedIps: readonly string[]): PeerConfig => ({
    publicKey: identity,
    ...(choice.how === 'try' && choice.at !== undefined ? { endpoint: choice.at } : {}),
    allowedIps: choice.forgets === true ? [] : allowedIps,
    keepaliveSeconds: keepaliveSeconds({ behindNat, ...life, farIsPublic: isPublic === true }),
  })
  const peers = [
    ...lane.links.map((link) => ({ link, peer: peer(link, [...link.prefixes, `${link.laneAddress}/32`]) })),
    ...lane.successors.map((link) => ({ link, peer: peer(link, []) })),
  ]
  const config = { listenPort: lane.port, mark: LANE_MARK, peers: peers.map((one) => one.peer) }
  return { config, text: deviceText(lane, config, peers.map(peerText)) }
}

/** The `ip` commands, then what `wg showconf` would print, without the private key. */
function deviceText({ device, mtu, address }: CableDevice, config: DeviceConfig, peers: readonly string[]): string {
  const ip = [formatLink({ kind: 'wireguard', name: device, mtu }), formatAddress({ device, address })]
  return `${ip.join('\n')}\n# wg syncconf ${device}\n${formatInterface(config)}${peers.join('')}`
}

function peerText({ link, peer }: { readonly link: CableLink; readonly peer: PeerConfig }): string {
  const { how, at, why } = link.choice
  const where = at === undefined ? '' : ` ${formatAddressPort(at)}`
  return `\n# ${link.cluster}, node ${link.node}: ${how}${where}: ${why}\n${formatPeer(peer)}`
}

/** 32 bytes in canonical base64, exactly as `wg` prints them. */
function isPublicKey(text: string): boolean {
  return /^[A-Za-z0-9+/]{43}=$/.test(text) && Buffer.from(text, 'base64').toString('base64') === text
}
