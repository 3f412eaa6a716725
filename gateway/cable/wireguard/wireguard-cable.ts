/** Links over WireGuard: one device for each remote lane number, one peer for each link, one key for each own lane. */
import { sameAddressPort } from '../../../model/addresses/address-port.ts'
import { laneDevice } from '../../../model/kernel-ids.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import type { DeviceState, PeerState, Wireguard } from '../../../kernel/wireguard/wireguard.ts'
import {
  type ApplyLaneInit,
  type Cable,
  type CableDriver,
  type CableDevice,
  type FarEnd,
  type LaneState,
  type LinkState,
  linkKey,
} from '../cable.ts'
import type { Round } from '../../../kernel/apply/round.ts'
import { type DeviceDeps, applyLane, sweepDevices } from './apply-devices.ts'
import { HandshakeTimes } from './handshake-times.ts'
import { KeyRotation, NOWHERE } from './key-rotation.ts'
import { ensureLaneKey, removeOtherLaneKeys } from './lane-key.ts'
import { OwnSources } from './own-sources.ts'
import { driverNames, planDevice, wireguardRules } from './plan-device.ts'

export interface WireguardCableDeps extends DeviceDeps {
  readonly wireguard: Wireguard
  readonly clock: Pick<Clock, 'now' | 'monotonic' | 'sleep'>
}

export interface WireguardCableInit {
  /** Private directory of this node, for the keys. */
  readonly stateDir: string
}

/** What is seen of a device, with the device itself for the round that changes it. */
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
 * A device in words of links: of the far ends that are among its peers. `handshakes` by public key (HandshakeTimes).
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
  readonly #handshakes = new HandshakeTimes()
  /** By remote lane. */
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
    const handshakes = this.#handshakes.look(devices.values(), now)
    const endsOf = (lane: number): FarEnd[] => ends.filter((end) => end.remoteLane === lane)
    return new Map([...devices].map(([lane, device]) => [lane, laneStateOf(device, endsOf(lane), handshakes)]))
  }

  /** Not while a key changes: what was planned before that would put the old one back. */
  apply(device: CableDevice, init: ApplyLaneInit): Promise<LaneState | undefined> {
    return this.rotation.inTurn(() => this.#apply(this.rotation.asFollowed(device), init))
  }

  async #apply(plan: CableDevice, init: ApplyLaneInit): Promise<LaneState | undefined> {
    const { callAnew, pathSource, round, ...rest } = init
    const seen = init.seen instanceof SeenDevice ? init.seen.device : undefined
    const sources = this.#sources.get(plan.remoteLane) ?? new OwnSources()
    this.#sources.set(plan.remoteLane, sources)
    const failures = round.failures
    const state = await applyLane(this.#deps, {
      ...rest,
      round,
      seen,
      plan,
      config: planDevice(plan).config,
      ensureKey: () => this.#ensureKey(plan.ownLane),
      callAnew: new Set([...plan.links, ...plan.successors].filter((link) => callAnew.has(linkKey(link))).map(keyOf)),
      sendAnew: sources.moved(seen === undefined ? [] : [seen], pathSource),
    })
    if (round.failures === failures) sources.reported()
    return state === undefined ? undefined : laneStateOf(state, [...plan.links, ...plan.successors], new Map())
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
