/** Applies the plan to lane devices, their addresses and their peers. Idempotent; it adds before it removes. */
import { familyOf, sameAddressPort } from '../../../model/addresses/addresses.ts'
import {
  type Joining,
  type PacketSteering,
  type SegmentJoining,
  type Sysctl,
  ensureDeviceSettings,
} from '../../../kernel/tuning/tuning.ts'
import { laneCable } from '../../../model/model.ts'
import { type Link, type RouteTable, formatAddress, formatLinkChange } from '../../../kernel/route/route.ts'
import {
  type DeviceConfig,
  type DeviceState,
  type PeerConfig,
  type PeerState,
  type Wireguard,
  formatDevice,
} from '../../../kernel/wireguard/wireguard.ts'
import { type CableDevice, laneDeviceNames } from '../cable-driver.ts'
import type { Round } from '../../../kernel/apply/apply.ts'

export interface DeviceDeps {
  readonly routes: RouteTable
  readonly wireguard: Wireguard
  readonly sysctl: Sysctl
  /** Absent: the devices keep the kernel's default of one CPU each. */
  readonly steering?: PacketSteering
  /** Absent or not supported: each packet of a user-space lane is processed separately. */
  readonly joining?: SegmentJoining
}

export interface ApplyDeviceInit {
  /** Returns the path of the lane's key file, which it creates if there is none. Throws LaneKeyError. */
  readonly ensureKey: () => Promise<string>
  readonly plan: CableDevice
  readonly config: DeviceConfig
  /** The device carries IPv6 too. */
  readonly withIpv6: boolean
  /** The device as it was when the plan was made. Undefined if it did not exist. */
  readonly seen: DeviceState | undefined
  /** Public keys of the peers to create again, so that WireGuard calls them at once. */
  readonly callAgain: ReadonlySet<string>
  /** Public keys of the peers that lose their address and session. */
  readonly forgotten: ReadonlySet<string>
  /** Public keys of the peers to which this node sends from another address than before (OwnSources). */
  readonly sendAgain: ReadonlySet<string>
  /** The applied policy covers the device on which joined segments arrive. */
  readonly mayJoin: boolean
  readonly round: Round
  readonly signal: AbortSignal
}

/** Returns the device's state before its peers were changed. Undefined if there is no device. */
export async function applyLane(deps: DeviceDeps, init: ApplyDeviceInit): Promise<DeviceState | undefined> {
  const { routes, wireguard } = deps
  const { plan, round, signal } = init
  const key = await round.attempt(init.ensureKey)
  if (key === undefined) return undefined
  const ensure = () => wireguard.ensureDevice(plan.device, { privateKeyFile: key.value, mtu: plan.mtu }, signal)
  const state = await round.attempt(ensure)
  if (state === undefined) return undefined
  if (init.seen === undefined) {
    round.note('device', `ip link add ${plan.device}`)
    round.drift?.repaired('device', 'Missing', round.drift.had(`device ${plan.device}`, [plan.device]))
  }
  const link = await round.attempt(async () => (await routes.links(signal)).find((one) => one.name === plan.device))
  await applyLink(deps, init, link?.value)
  // Below an MTU of 1280 a device has no IPv6 settings.
  await ensureDeviceSettings(deps.sysctl, round, plan.device, init.withIpv6 ? [4, 6] : [4])
  await applyAddress(deps, plan, round, signal)
  reportLostPeers(init, state.value)
  const failures = round.failures
  await applyPeers(deps, init, state.value)
  if (round.failures === failures) settle(init)
  return state.value
}

/** Reports peers that another program removed or changed. Skips a new device, which has no peers yet. */
function reportLostPeers({ plan, config, round, seen }: ApplyDeviceInit, state: DeviceState): void {
  if (seen === undefined || round.drift === undefined) return
  const { device } = plan
  const there = new Map(state.peers.map((peer) => [peer.publicKey, peerText(device, peer)]))
  const missing = config.peers.filter(({ publicKey }) => !there.has(publicKey))
  const changed = config.peers.filter((peer) => {
    const text = there.get(peer.publicKey)
    return text !== undefined && text !== peerText(device, peer)
  })
  const had = (peers: readonly PeerConfig[]): string[] => {
    return (
      round.drift?.had(
        `peers ${device}`,
        peers.map((peer) => peerText(device, peer)),
      ) ?? []
    )
  }
  round.drift.repaired('peers', 'Missing', had(missing))
  round.drift.repaired('peers', 'Changed', had(changed))
}

function settle({ plan, config, round }: ApplyDeviceInit): void {
  const { device } = plan
  round.drift?.settle(`device ${device}`, [device])
  round.drift?.settle(`address ${device}`, [plan.address])
  round.drift?.settle(
    `peers ${device}`,
    config.peers.map((peer) => peerText(device, peer)),
  )
}

function peerText(device: string, { publicKey, allowedIps }: Pick<PeerConfig, 'publicKey' | 'allowedIps'>): string {
  return `wg set ${device} peer ${publicKey} allowed-ips ${[...allowedIps].sort().join()}`
}

/**
 * Removes a peer before it calls it again, which ends WireGuard's wait for an answer to its last call. The same applies
 * to a peer that gets its first address: WireGuard has tried to call it without one, and waits as well.
 */
async function applyPeers({ wireguard }: DeviceDeps, init: ApplyDeviceInit, state: DeviceState): Promise<void> {
  const { plan, round, signal } = init
  const { device } = plan
  const config = sentAgain(withoutEndpoints(init.config, newlyHeard(init.seen, state)), state, init.sendAgain)
  const called = new Set(config.peers.filter((peer) => peer.endpoint !== undefined).map((peer) => peer.publicKey))
  const gone = state.peers.filter(
    ({ publicKey, endpoint }) =>
      (called.has(publicKey) && (endpoint === undefined || init.callAgain.has(publicKey))) ||
      (endpoint !== undefined && init.forgotten.has(publicKey)),
  )
  if (gone.length === 0 && isSynced(state, config)) return
  if (gone.length > 0) {
    const others = { ...config, peers: config.peers.filter((peer) => !gone.some(isSamePeer(peer))) }
    const text = `wg set ${device} ${gone.map((peer) => `peer ${peer.publicKey} remove`).join(' ')}`
    await round.change('peers', text, () => wireguard.sync(device, others, signal))
  }
  await round.change('peers', formatDevice(config), () => wireguard.sync(device, config, signal))
}

async function applyLink(
  { routes, sysctl, steering, joining }: DeviceDeps,
  { plan, mayJoin, round, signal }: ApplyDeviceInit,
  link: Link | undefined,
): Promise<void> {
  if (link !== undefined && (link.mtu !== plan.mtu || !link.up)) {
    const change = { mtu: plan.mtu, up: true }
    const stopped = link.up ? [] : [plan.device]
    round.drift?.repaired('device', 'Changed', round.drift.had(`device ${plan.device}`, stopped))
    await round.change('device', formatLinkChange(plan.device, change), () =>
      routes.setLink(plan.device, change, signal),
    )
  }
  // Joined segments are few, so spreading them over CPUs would cost more than it gains.
  if (mayJoin && (await joinSegments({ sysctl, joining }, plan.device, round, signal))) return
  const spread = await round.attempt(async () => steering?.spread(plan.device))
  if (spread?.value !== undefined) round.note('sysctl', spread.value)
}

/** True if TCP segments of the device arrive joined now. */
async function joinSegments(
  { sysctl, joining }: Pick<DeviceDeps, 'sysctl'> & { readonly joining: SegmentJoining | undefined },
  device: string,
  round: Round,
  signal: AbortSignal,
): Promise<boolean> {
  if (joining === undefined) return false
  const connected = await reportJoining(round, () => joining.connect(device, signal))
  if (!connected) return false
  const { tx, rx } = laneCable(device)
  for (const end of [tx, rx]) await ensureDeviceSettings(sysctl, round, end, [4])
  return reportJoining(round, () => joining.lead(device, signal))
}

async function reportJoining(round: Round, action: () => Promise<Joining>): Promise<boolean> {
  const joining = (await round.attempt(action))?.value
  for (const text of joining?.done ?? []) round.note('device', text)
  if (joining?.why !== undefined) round.report('TCP segments are not joined', { why: joining.why })
  return joining?.on === true
}

async function applyAddress(deps: DeviceDeps, plan: CableDevice, round: Round, signal: AbortSignal): Promise<void> {
  const { routes } = deps
  const all = await round.attempt(() => routes.addresses(signal))
  const present = (all?.value ?? []).filter((entry) => entry.device === plan.device && familyOf(entry.address) === 4)
  const wanted = { device: plan.device, address: plan.address }
  if (!present.some((entry) => entry.address === plan.address)) {
    round.drift?.repaired('address', 'Missing', round.drift.had(`address ${plan.device}`, [plan.address]))
    await round.change('address', formatAddress(wanted), () => routes.addAddress(wanted, signal))
  }
  for (const stale of present.filter((entry) => entry.address !== plan.address)) {
    const text = `ip address del ${stale.address} dev ${stale.device}`
    await round.change('address', text, () => routes.deleteAddress(stale, signal))
  }
}

/** Removes lane devices that are not in the plan, and the rest of their cables. True if all were removed. */
export async function sweepDevices(
  deps: Pick<DeviceDeps, 'routes' | 'wireguard' | 'joining'>,
  keep: readonly string[],
  round: Round,
  signal: AbortSignal,
): Promise<boolean> {
  const names = await round.attempt(() => laneDeviceNames(deps.routes, signal))
  let done = names !== undefined
  for (const name of names?.value ?? []) {
    if (keep.includes(name)) continue
    const text = `ip link del ${name}`
    done = (await round.change('device', text, () => deps.wireguard.deleteDevice(name, signal))) && done
    round.drift?.forget(`device ${name}`, `address ${name}`, `peers ${name}`)
  }
  const swept = await round.attempt(async () => deps.joining?.sweep(keep, signal))
  for (const text of swept?.value ?? []) round.note('device', text)
  return done
}

/**
 * Peers that completed a handshake or called since the plan was made. They keep their address, whatever the plan would
 * try. A call that comes from where the peer was called before shows only in its octets: the answer to it is under way,
 * and a peer that is created again could not complete the handshake.
 */
function newlyHeard(seen: DeviceState | undefined, state: DeviceState): Set<string> {
  const before = new Map(seen?.peers.map((peer) => [peer.publicKey, peer]))
  const heard = state.peers.filter(({ publicKey, lastHandshakeMs, endpoint, rxBytes }) => {
    const known = before.get(publicKey)
    const shook = lastHandshakeMs !== undefined && lastHandshakeMs !== known?.lastHandshakeMs
    const called = lastHandshakeMs === undefined && rxBytes > (known?.rxBytes ?? 0)
    return shook || called || (endpoint !== undefined && !sameAddressPort(endpoint, known?.endpoint))
  })
  return new Set(heard.map((peer) => peer.publicKey))
}

function withoutEndpoints(config: DeviceConfig, keys: ReadonlySet<string>): DeviceConfig {
  const peers = config.peers.map((peer): PeerConfig => {
    if (!keys.has(peer.publicKey)) return peer
    const { publicKey, allowedIps, keepaliveSeconds } = peer
    return { publicKey, allowedIps, keepaliveSeconds }
  })
  return { ...config, peers }
}

/** Sets the addresses of these peers again, within the existing session. */
function sentAgain(config: DeviceConfig, state: DeviceState, keys: ReadonlySet<string>): DeviceConfig {
  const places = new Map(state.peers.map(({ publicKey, endpoint }) => [publicKey, endpoint]))
  const peers = config.peers.map((peer): PeerConfig => {
    const endpoint = peer.endpoint ?? places.get(peer.publicKey)
    return keys.has(peer.publicKey) && endpoint !== undefined ? { ...peer, endpoint, setsEndpointAgain: true } : peer
  })
  return { ...config, peers }
}

function isSamePeer(peer: PeerConfig): (other: PeerState) => boolean {
  return (other) => other.publicKey === peer.publicKey
}

function isSynced(state: DeviceState, config: DeviceConfig): boolean {
  if ((state.mark ?? 0) !== (config.mark ?? 0)) return false
  if (state.listenPort !== config.listenPort || state.peers.length !== config.peers.length) return false
  const peers = new Map(state.peers.map((peer) => [peer.publicKey, peer]))
  return config.peers.every((wanted) => {
    const peer = peers.get(wanted.publicKey)
    if (peer === undefined || peer.keepaliveSeconds !== wanted.keepaliveSeconds) return false
    if (wanted.setsEndpointAgain === true) return false
    if (wanted.endpoint !== undefined && !sameAddressPort(wanted.endpoint, peer.endpoint)) return false
    return [...peer.allowedIps].sort().join() === [...wanted.allowedIps].sort().join()
  })
}
