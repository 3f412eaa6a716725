/** Links over WireGuard: one device for each remote lane number, one peer for each link, one key for each own lane. */
import type { Round } from '../../../kernel/apply/apply.ts'
import { type DeviceState, type PeerState, type Wireguard, publicKeyOf } from '../../../kernel/wireguard/wireguard.ts'
import { type AddressPort, formatAddress, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { laneDevice } from '../../../model/model.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { type Agreement, agreementOf } from '../agreement.ts'
import {
  type ApplyLaneInit,
  type Cable,
  type CableDevice,
  type CableDriver,
  type FarEnd,
  type LaneState,
  type LinkState,
  linkKey,
} from '../cable-driver.ts'
import { type DeviceDeps, applyLane, sweepDevices } from './apply-devices.ts'
import {
  KeyRotation,
  NOWHERE,
  ensureLaneKey,
  laneKeyPath,
  nextKeyPath,
  readKey,
  removeOtherLaneKeys,
} from './lane-keys.ts'
import { driverNames, planDevice, wireguardRules } from './plan-device.ts'

interface Way {
  /** Address of the peer. */
  readonly to: AddressPort
  readonly from: string
}

/**
 * Tracks from which of this node's addresses each peer is sent to. User-space WireGuard remembers that address. If the
 * node no longer has it, WireGuard sends nothing until it has received nothing for 15 s. Setting the peer's endpoint
 * again makes it forget the address.
 */
export class OwnSources {
  /** Path to each peer, by public key. */
  #paths: ReadonlyMap<string, Way> = new Map()
  #seen: ReadonlyMap<string, Way> = new Map()

  /**
   * Takes the devices and the paths of a round (GatewayWorld.pathSource). Returns the public keys of the peers whose
   * address is unchanged while this node's address towards them has changed since the last round that called
   * reported().
   */
  moved(devices: Iterable<DeviceState>, pathSource: ReadonlyMap<string, string>): ReadonlySet<string> {
    const seen = new Map<string, Way>()
    const moved = new Set<string>()
    for (const { publicKey, endpoint } of [...devices].flatMap(({ peers }) => peers)) {
      if (endpoint === undefined) continue
      const before = this.#paths.get(publicKey)
      const from = pathSource.get(formatAddress(endpoint.address))
      const isThere = before !== undefined && sameAddressPort(before.to, endpoint)
      // While there is no path, the last one is kept, because the next path may begin at another address.
      if (from === undefined) {
        if (isThere) seen.set(publicKey, before)
        continue
      }
      if (isThere && before.from !== from) moved.add(publicKey)
      seen.set(publicKey, { to: endpoint, from })
    }
    this.#seen = seen
    return moved
  }

  /** The devices have been given the last result of moved(). */
  reported(): void {
    this.#paths = this.#seen
  }
}

interface Seen {
  readonly lastHandshakeMs: number
  /** Time of the handshake, in milliseconds of the monotonic clock. */
  readonly atMs: number
}

/**
 * Finds when each peer last completed a handshake, on the monotonic clock. A device dates handshakes by the wall clock,
 * which may be changed at any time. So a date only distinguishes handshakes, and the time at which it was seen to
 * change counts.
 */
export class HandshakeTimes {
  #seen: ReadonlyMap<string, Seen> = new Map()
  #lookedMs = -Infinity

  /**
   * Takes the devices. Returns, by public key, the monotonic time of the last handshake of each peer that ever had one.
   * Forgets peers that no longer exist.
   */
  look(
    devices: Iterable<DeviceState>,
    { nowMs, monotonicMs }: { readonly nowMs: number; readonly monotonicMs: number },
  ): ReadonlyMap<string, number> {
    const seen = new Map<string, Seen>()
    for (const { peers } of devices) {
      for (const { publicKey, lastHandshakeMs } of peers) {
        if (lastHandshakeMs === undefined) continue
        const before = this.#seen.get(publicKey)
        if (before?.lastHandshakeMs === lastHandshakeMs) seen.set(publicKey, before)
        else {
          // The handshake is not older than the last look, whatever the wall clock says. One from before the first look
          // may have any age. If the clock was set back since then, its age is unknown, and it counts as new.
          const ageMs = Math.min(Math.max(0, nowMs - lastHandshakeMs), monotonicMs - this.#lookedMs)
          seen.set(publicKey, { lastHandshakeMs, atMs: monotonicMs - ageMs })
        }
      }
    }
    this.#seen = seen
    this.#lookedMs = monotonicMs
    return new Map([...seen].map(([publicKey, { atMs }]) => [publicKey, atMs]))
  }
}

export interface WireguardCableDeps extends DeviceDeps {
  readonly wireguard: Wireguard
  readonly clock: Pick<Clock, 'now' | 'monotonic' | 'sleep'>
}

export interface WireguardCableInit {
  /** Private directory of this node, for the keys. */
  readonly stateDir: string
}

/** The seen state of a device, with the device itself for the round that changes it. */
class SeenDevice implements LaneState {
  readonly device: DeviceState
  readonly links: ReadonlyMap<string, LinkState>

  constructor(device: DeviceState, links: ReadonlyMap<string, LinkState>) {
    this.device = device
    this.links = links
  }

  get identity(): string {
    return this.device.publicKey
  }

  get port(): number {
    return this.device.listenPort
  }
}

/**
 * Converts a device into links to those far ends that are among its peers. `handshakes` is by public key
 * (HandshakeTimes).
 */
export function laneStateOf(
  device: DeviceState,
  ends: readonly FarEnd[],
  handshakes: ReadonlyMap<string, number>,
): LaneState {
  const peers = new Map(device.peers.map((peer) => [peer.publicKey, peer]))
  const links = ends.flatMap((end) => {
    const peer = peers.get(end.identity)
    return peer === undefined ? [] : [[linkKey(end), linkStateOf(peer, handshakes.get(peer.publicKey))] as const]
  })
  return new SeenDevice(device, new Map(links))
}

function linkStateOf(
  { endpoint, allowedIps, rxBytes, txBytes }: PeerState,
  handshakeMs: number | undefined,
): LinkState {
  return {
    ...(endpoint === undefined || sameAddressPort(endpoint, NOWHERE) ? {} : { at: endpoint }),
    carries: allowedIps.length > 0,
    ...(handshakeMs === undefined ? {} : { handshakeMs }),
    rxBytes,
    txBytes,
  }
}

export class WireguardCable implements Cable {
  readonly rules = wireguardRules
  readonly #deps: WireguardCableDeps
  readonly #stateDir: string
  readonly rotation: KeyRotation
  /** By remote lane, because not each reading is of all devices. */
  readonly #handshakes = new Map<number, HandshakeTimes>()
  /** One for each remote lane. */
  readonly #sources = new Map<number, OwnSources>()

  constructor(deps: WireguardCableDeps, { stateDir }: WireguardCableInit) {
    this.#deps = deps
    this.#stateDir = stateDir
    this.rotation = new KeyRotation(deps, stateDir)
  }

  async driver(signal?: AbortSignal): Promise<CableDriver> {
    return { name: driverNames[await this.#deps.wireguard.driver(signal)] }
  }

  /** Throws LaneKeyError. */
  async prepare(ownLanes: readonly number[]): Promise<void> {
    for (const lane of ownLanes) await this.#ensureKey(lane)
    await removeOtherLaneKeys(this.#stateDir, ownLanes)
  }

  /** Also while a rotation replaces the key: the identity decides which of the two files is meant. */
  async agreement(ownLane: number, identity: string): Promise<Agreement | undefined> {
    for (const path of [laneKeyPath, nextKeyPath]) {
      const key = await readKey(path(this.#stateDir, ownLane))
      if (key !== undefined && publicKeyOf(key) === identity) return agreementOf(key)
    }
    return undefined
  }

  async observe(
    remoteLanes: readonly number[],
    ends: readonly FarEnd[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, LaneState>> {
    const { wireguard, clock } = this.#deps
    const devices = new Map<number, DeviceState>()
    for (const lane of remoteLanes) {
      const device = await wireguard.read(laneDevice(lane), signal)
      if (device !== undefined) devices.set(lane, device)
    }
    const now = { nowMs: clock.now(), monotonicMs: clock.monotonic() }
    const states = new Map<number, LaneState>()
    for (const lane of remoteLanes) {
      const times = this.#handshakes.get(lane) ?? new HandshakeTimes()
      this.#handshakes.set(lane, times)
      const device = devices.get(lane)
      const handshakes = times.look(device === undefined ? [] : [device], now)
      const laneEnds = ends.filter((end) => end.remoteLane === lane)
      if (device !== undefined) states.set(lane, laneStateOf(device, laneEnds, handshakes))
    }
    return states
  }

  /** Waits while a key changes, because an earlier plan would restore the old key. */
  apply(device: CableDevice, init: ApplyLaneInit): Promise<LaneState | undefined> {
    return this.rotation.inTurn(() => this.#apply(this.rotation.asFollowed(device), init))
  }

  async #apply(plan: CableDevice, init: ApplyLaneInit): Promise<LaneState | undefined> {
    const { callAgain, pathSource, round, ...rest } = init
    const seen = init.seen instanceof SeenDevice ? init.seen.device : undefined
    const sources = this.#sources.get(plan.remoteLane) ?? new OwnSources()
    this.#sources.set(plan.remoteLane, sources)
    const failures = round.failures
    const all = [...plan.links, ...plan.successors]
    const forgotten = new Set(all.filter(({ choice }) => choice.forgets === true).map(keyOf))
    const moved = sources.moved(seen === undefined ? [] : [seen], pathSource)
    const state = await applyLane(this.#deps, {
      ...rest,
      round,
      seen,
      plan,
      config: planDevice(plan).config,
      ensureKey: () => this.#ensureKey(plan.ownLane),
      callAgain: new Set(all.filter((link) => callAgain.has(linkKey(link))).map(keyOf)),
      forgotten,
      sendAgain: new Set([...moved].filter((key) => !forgotten.has(key))),
    })
    if (round.failures === failures) sources.reported()
    return state === undefined ? undefined : laneStateOf(state, all, new Map())
  }

  remove(keep: readonly string[], round: Round, signal: AbortSignal): Promise<boolean> {
    return sweepDevices(this.#deps, keep, round, signal)
  }

  #ensureKey(ownLane: number): Promise<string> {
    return ensureLaneKey(this.#stateDir, ownLane, () => this.#deps.wireguard.generateKey().privateKey)
  }
}

function keyOf({ identity }: FarEnd): string {
  return identity
}
