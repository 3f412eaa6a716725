/**
 * The private key of a lane, created at the first start with mode 0600 in a directory of mode 0700 and never logged,
 * and its rotation.
 */
import { mkdir, readFile, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { type PeerState, type Wireguard, publicKeyOf } from '../../../kernel/wireguard/wireguard.ts'
import { parseAddressPort } from '../../../model/addresses/addresses.ts'
import { laneDevice } from '../../../model/model.ts'
import { type Clock, SerialQueue } from '../../../reconcile/reconcile.ts'
import { createFile, messageOf } from '../../../runtime/runtime.ts'
import type { CableDevice, CableLink, CableRotation, FarEnd, FollowedLink } from '../cable-driver.ts'

/** The only check of the file's content. WireGuard keys are 32 bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{43}=\n?$/

/** A key file that cannot be used. The message names the file, the problem and the remedy. */
export class LaneKeyError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'LaneKeyError'
  }
}

export function laneKeyPath(stateDir: string, lane: number): string {
  return join(stateDir, `lane${lane}.key`)
}

/**
 * Returns the path of the lane's key file. Creates the file and the directory if they do not exist. Throws
 * LaneKeyError. An unusable key is never replaced, because the other clusters may know this gateway only by it.
 */
export async function ensureLaneKey(stateDir: string, lane: number, newKey: () => string): Promise<string> {
  await ensureDirectory(stateDir)
  const path = laneKeyPath(stateDir, lane)
  try {
    await checkKey(path)
  } catch (error) {
    if (!isCode(error, 'ENOENT')) throw error
    await writeKey(path, newKey())
    await checkKey(path)
  }
  return path
}

/** Path of the next key, beside the present one and under the same rules. */
export function nextKeyPath(stateDir: string, lane: number): string {
  return join(stateDir, `lane${lane}.next.key`)
}

/**
 * Returns the path of the next key, which it creates if there is none. An unusable next key is replaced, because it is
 * not in use. Throws LaneKeyError.
 */
export async function ensureNextKey(stateDir: string, lane: number, newKey: () => string): Promise<string> {
  const path = nextKeyPath(stateDir, lane)
  try {
    await checkKey(path)
  } catch (error) {
    if (!isCode(error, 'ENOENT')) await rm(path, { force: true })
    await writeKey(path, newKey())
    await checkKey(path)
  }
  return path
}

/** The content of a usable key file. Undefined if there is none, or if it is not usable. */
export async function readKey(path: string): Promise<string | undefined> {
  try {
    await checkKey(path)
    return await readFile(path, 'utf8')
  } catch {
    return undefined
  }
}

/** Replaces the present key by the next one in one step, so a crash leaves one or the other. Throws LaneKeyError. */
export async function promoteNextKey(stateDir: string, lane: number): Promise<void> {
  const path = nextKeyPath(stateDir, lane)
  try {
    await checkKey(path)
    await rename(path, laneKeyPath(stateDir, lane))
  } catch (error) {
    if (error instanceof LaneKeyError) throw error
    throw new LaneKeyError(`lane key ${path}: ${reason(error)}`, { cause: error })
  }
}

/** When the present key was created, in milliseconds since 1970. Throws LaneKeyError. */
export async function laneKeyMadeMs(stateDir: string, lane: number): Promise<number> {
  const path = laneKeyPath(stateDir, lane)
  try {
    return (await stat(path)).mtimeMs
  } catch (error) {
    throw new LaneKeyError(`lane key ${path}: ${reason(error)}`, { cause: error })
  }
}

/** Removes the keys of all other lanes, which this node no longer serves, without reading the files. */
export async function removeOtherLaneKeys(stateDir: string, lanes: readonly number[]): Promise<void> {
  const keep = new Set(
    lanes.flatMap((lane) => [laneKeyPath, nextKeyPath].map((path) => basename(path(stateDir, lane)))),
  )
  for (const name of await namesIn(stateDir)) {
    const isKey = /^lane\d+(\.next)?\.key$/.test(name) && !keep.has(name)
    // A killed process may have left a key under a temporary name. Those of this process are in use.
    const writer = /^\.lane\d+(?:\.next)?\.key\.(\d+)\.[0-9a-f]{12}\.tmp$/.exec(name)?.[1]
    if (isKey || (writer !== undefined && writer !== String(process.pid)))
      await rm(join(stateDir, name), { force: true })
  }
}

async function namesIn(directory: string): Promise<readonly string[]> {
  try {
    return await readdir(directory)
  } catch (error) {
    if (isCode(error, 'ENOENT')) return []
    throw error
  }
}

async function ensureDirectory(stateDir: string): Promise<void> {
  try {
    await mkdir(stateDir, { recursive: true, mode: 0o700 })
    const mode = (await stat(stateDir)).mode & 0o777
    if ((mode & 0o077) !== 0) {
      throw new LaneKeyError(`state directory ${stateDir}: mode ${octal(mode)}, expected 0700 (chmod 700 ${stateDir})`)
    }
  } catch (error) {
    if (error instanceof LaneKeyError) throw error
    throw new LaneKeyError(`state directory ${stateDir}: ${reason(error)}`, { cause: error })
  }
}

async function checkKey(path: string): Promise<void> {
  let text: string
  try {
    const mode = (await stat(path)).mode & 0o777
    if ((mode & 0o077) !== 0)
      throw new LaneKeyError(`lane key ${path}: mode ${octal(mode)}, expected 0600 (chmod 600 ${path})`)
    text = await readFile(path, 'utf8')
  } catch (error) {
    if (error instanceof LaneKeyError || isCode(error, 'ENOENT')) throw error
    throw new LaneKeyError(`lane key ${path}: ${reason(error)}`, { cause: error })
  }
  if (!KEY.test(text)) {
    throw new LaneKeyError(
      `lane key ${path}: not a WireGuard private key (expected 44 characters of base64); restore the file, or remove it to get a new key`,
    )
  }
}

/** The first of two writers wins. */
async function writeKey(path: string, key: string): Promise<void> {
  try {
    await createFile(path, `${key}\n`)
  } catch (error) {
    throw new LaneKeyError(`lane key ${path}: ${reason(error)}`, { cause: error })
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}

function reason(error: unknown): string {
  if (isCode(error, 'EACCES')) return 'permission denied'
  if (isCode(error, 'EROFS')) return 'the file system is read-only'
  if (isCode(error, 'ENOSPC')) return 'no space left'
  if (isCode(error, 'EDQUOT')) return 'the disk quota is exhausted'
  if (isCode(error, 'ENOTDIR') || isCode(error, 'EEXIST')) return 'a file exists where a directory is expected'
  if (isCode(error, 'EISDIR')) return 'a directory exists where a file is expected'
  return messageOf(error)
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0')
}

/**
 * Address of a peer until it calls: WireGuard then uses the address from which it calls. Only calls for a session are
 * sent to it, to the discard port of this machine (RFC 863).
 */
export const NOWHERE = parseAddressPort('127.0.0.1:9')

interface KeyRotationDeps {
  readonly wireguard: Wireguard
  readonly clock: Pick<Clock, 'now' | 'monotonic' | 'sleep'>
}

interface Followed {
  readonly to: string
  readonly atMs: number
}

/**
 * Time in which the tools that set the key start. A tool that needs longer changes its key late, without other effect.
 */
const STARTED_MS = 1000
const never = new AbortController().signal

/** A round that was planned before this has ended long ago. */
const PLANNED_BEFORE_MS = 15_000

/**
 * Gives this end a new key, and follows far ends that take one. WireGuard knows one key of each end at a time. With a
 * new key nothing can be sent before the next handshake, but the existing sessions still receive. Packets to send wait
 * (128 per peer), and leave when the far end, which then knows the new key, has called.
 */
export class KeyRotation implements CableRotation {
  readonly #deps: KeyRotationDeps
  readonly #stateDir: string
  /** Key changes that a plan may not include yet, by remote lane and old key. */
  readonly #followed = new Map<string, Followed>()
  readonly #queue = new SerialQueue()

  constructor(deps: KeyRotationDeps, stateDir: string) {
    this.#deps = deps
    this.#stateDir = stateDir
  }

  /** Runs the actions one after another. A failure does not stop the next one. */
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
      // The file is changed first: after a crash, the new process uses the key that the far ends are about to know.
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
      // If one device fails, the others still change, and the next round continues with that one.
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
      // Without prefixes, a round has changed the peer since.
      if (peer === undefined || peer.allowedIps.length === 0 || peer.lastHandshakeMs !== undefined) return true
      await this.#deps.wireguard.replacePeer(laneDevice(remoteLane), to, { ...place(peer), publicKey: to }, signal)
      return false
    })
  }

  /** A plan that was made before a far end was followed, with the far end's new identity. */
  asFollowed(device: CableDevice): CableDevice {
    const { remoteLane } = device
    const sinceMs = this.#deps.clock.monotonic() - PLANNED_BEFORE_MS
    for (const [key, { atMs }] of this.#followed) if (atMs < sinceMs) this.#followed.delete(key)
    const now = (link: CableLink): CableLink => {
      const identity = this.#followed.get(followedKey(remoteLane, link.identity))?.to
      return identity === undefined
        ? link
        : { ...link, identity, choice: { how: 'keep', why: 'the remote gateway has a new key' } }
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
