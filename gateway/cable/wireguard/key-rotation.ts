/**
 * A new key for this end, and far ends that take one. WireGuard knows one key of each end at a time: with a new one
 * nothing can be sent before the next handshake, but the sessions that there are still receive. What is to be sent
 * waits (128 packets a peer), and goes out when the far end, which then knows the new key, has called.
 */
import { parseAddressPort } from '../../../model/addresses/address-port.ts'
import { laneDevice } from '../../../model/kernel-ids.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import { SerialQueue } from '../../../reconcile/serial-queue.ts'
import type { PeerState, Wireguard } from '../../../kernel/wireguard/wireguard.ts'
import { publicKeyOf } from '../../../kernel/wireguard/wireguard-key.ts'
import type { CableDevice, CableLink, CableRotation, FarEnd, FollowedLink } from '../cable.ts'
import { ensureNextKey, laneKeyMadeMs, laneKeyPath, nextKeyPath, promoteNextKey, readKey } from './lane-key.ts'

/**
 * Where a peer is until it calls: WireGuard goes by the place that it calls from. What is sent there is one call for a
 * session, to the discard port of this machine (RFC 863).
 */
export const NOWHERE = parseAddressPort('127.0.0.1:9')

export interface KeyRotationDeps {
  readonly wireguard: Wireguard
  readonly clock: Pick<Clock, 'now' | 'monotonic' | 'sleep'>
}

interface Followed {
  readonly to: string
  readonly atMs: number
}

/** The tools that set the key have started by then. One that has not is late, and no more. */
const STARTED_MS = 1000
const never = new AbortController().signal

/** A round that was planned before it has long ended. */
const PLANNED_BEFORE_MS = 15_000

export class KeyRotation implements CableRotation {
  readonly #deps: KeyRotationDeps
  readonly #stateDir: string
  /** What was followed and may not be in a plan yet, by remote lane and old key. */
  readonly #followed = new Map<string, Followed>()
  readonly #queue = new SerialQueue()

  constructor(deps: KeyRotationDeps, stateDir: string) {
    this.#deps = deps
    this.#stateDir = stateDir
  }

  /** One after the other, whatever becomes of the one before. */
  inTurn<T>(action: () => Promise<T>): Promise<T> {
    return this.#queue.run(action)
  }

  async next(ownLane: number): Promise<string | undefined> {
    const key = await readKey(nextKeyPath(this.#stateDir, ownLane))
    return key === undefined ? undefined : publicKeyOf(key)
  }

  async makeNext(ownLane: number): Promise<string> {
    const path = await ensureNextKey(this.#stateDir, ownLane, () => this.#deps.wireguard.generateKey().privateKey)
    return publicKeyOf((await readKey(path)) ?? '')
  }

  async ageMs(ownLane: number): Promise<number> {
    return this.#deps.clock.now() - (await laneKeyMadeMs(this.#stateDir, ownLane))
  }

  takeNext(
    ownLane: number,
    remoteLanes: readonly number[],
    followers: readonly FarEnd[],
    sayLast: () => Promise<void>,
  ): Promise<void> {
    const { wireguard, clock } = this.#deps
    return this.inTurn(async () => {
      // The file first: who starts after a crash goes on with what the far ends are about to know.
      await promoteNextKey(this.#stateDir, ownLane)
      const privateKeyFile = laneKeyPath(this.#stateDir, ownLane)
      const setKey = (lane: number): Promise<void> => {
        const ends = followers.filter(({ remoteLane }) => remoteLane === lane)
        const places = ends.map(({ identity }) => ({ publicKey: identity, endpoint: NOWHERE }))
        const waiting = Promise.withResolvers<undefined>()
        waits.push(waiting.promise)
        const onWaiting = (): void => waiting.resolve(undefined)
        return wireguard.setKey(laneDevice(lane), { privateKeyFile, places, after: said.promise, onWaiting })
      }
      const said = Promise.withResolvers<undefined>()
      const waits: Promise<undefined>[] = []
      const set = Promise.all(remoteLanes.map(setKey))
      // Where one device fails, the others change all the same, and the next round goes on with that one.
      const failed = set.catch(() => undefined)
      await Promise.race([clock.sleep(STARTED_MS, never), Promise.all(waits), failed])
      await sayLast().then(() => said.resolve(undefined), said.reject)
      await set
    })
  }

  follow({ remoteLane, from, to }: FollowedLink, after: Promise<unknown>, signal: AbortSignal): Promise<void> {
    return this.inTurn(async () => {
      const peer = await this.#peer(remoteLane, from, signal)
      await after
      if (peer === undefined || peer.allowedIps.length === 0) return
      await this.#deps.wireguard.replacePeer(laneDevice(remoteLane), from, { ...place(peer), publicKey: to }, signal)
      this.#followed.set(followedKey(remoteLane, from), { to, atMs: this.#deps.clock.monotonic() })
    })
  }

  hasFollowed({ remoteLane, to }: FollowedLink, signal: AbortSignal): Promise<boolean> {
    return this.inTurn(async () => {
      const peer = await this.#peer(remoteLane, to, signal)
      // Without prefixes: a round has done something else since.
      if (peer === undefined || peer.allowedIps.length === 0 || peer.lastHandshakeMs !== undefined) return true
      await this.#deps.wireguard.replacePeer(laneDevice(remoteLane), to, { ...place(peer), publicKey: to }, signal)
      return false
    })
  }

  /** A plan that was made before a far end was followed, as it would be now. */
  asFollowed(device: CableDevice): CableDevice {
    const { remoteLane } = device
    const sinceMs = this.#deps.clock.monotonic() - PLANNED_BEFORE_MS
    for (const [key, { atMs }] of this.#followed) if (atMs < sinceMs) this.#followed.delete(key)
    const now = (link: CableLink): CableLink => {
      const identity = this.#followed.get(followedKey(remoteLane, link.identity))?.to
      return identity === undefined ? link : { ...link, identity, choice: { how: 'keep', why: 'it has a new key' } }
    }
    const links = device.links.map(now)
    const served = new Set(links.map(({ identity }) => identity))
    return { ...device, links, successors: device.successors.filter(({ identity }) => !served.has(identity)) }
  }

  async #peer(remoteLane: number, publicKey: string, signal: AbortSignal): Promise<PeerState | undefined> {
    const device = await this.#deps.wireguard.read(laneDevice(remoteLane), signal)
    return device?.peers.find((peer) => peer.publicKey === publicKey)
  }
}

function place({ endpoint, allowedIps, keepaliveSeconds }: PeerState) {
  return { ...(endpoint === undefined ? {} : { endpoint }), allowedIps, keepaliveSeconds }
}

function followedKey(remoteLane: number, from: string): string {
  return `${remoteLane} ${from}`
}
