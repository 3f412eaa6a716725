/**
 * Drives WireGuard through the `wg` tool, for kernel devices and wireguard-go alike. Devices of wireguard-go are read
 * through their socket (wireguard-go.ts). A private key is passed as the path of its file, or of a pipe from it
 * (throughKeyPipe()). It is never an argument or an environment variable, and is never kept.
 */
import { randomBytes } from 'node:crypto'
import { type FileHandle, constants, open, readFile, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { formatAddressPort } from '../../model/addresses/addresses.ts'
import { type Clock, SystemClock } from '../../reconcile/reconcile.ts'
import {
  KernelError,
  type KernelErrorCode,
  type RunCommand,
  isExists,
  isNotFound,
  namingPortHolders,
  runCommand,
} from '../kernel.ts'
import type { Link, RouteTable } from '../route/route.ts'
import { planReplacement, planWgSync } from './plan-wg-sync.ts'
import { parseDump } from './wg-text.ts'
import {
  type DeviceConfig,
  type DeviceState,
  type KeyInit,
  type PeerConfig,
  type Wireguard,
  type WireguardDriver,
  checkDeviceConfig,
  checkWireguardName,
  generateWireguardKey,
} from './wireguard-device.ts'
import { daemonsOf, endWireguardGo, readByUapi, socketPath, startWireguardGo } from './wireguard-go.ts'

// A named pipe (fifo(7)), in the folder of the key file, that a tool may open before it may have the key. The tool
// waits for it and does the rest once the key arrives. Standard input does not work here: Node uses a socket for it,
// which cannot be opened by name.

interface KeyPipeInit {
  readonly file: string
  readonly after: Promise<unknown>
  /** Called once, when the tool has everything but the key, unless the tool has failed before. */
  readonly onWaiting: () => void
}

/** How often to check whether the tool has opened the pipe. */
const LOOK_MS = 1

/**
 * Calls `start` at once with the path of a pipe that the tool opens, and returns the result of `start`. The tool
 * receives the content of `file` when `after` resolves. If `after` rejects, the signal is aborted and this function
 * rejects with the same error. It also rejects if the tool fails. If no pipe can be created, `start` is called after
 * `after`, with the file itself.
 */
export async function throughKeyPipe<T>(
  run: RunCommand,
  { file, after, onWaiting }: KeyPipeInit,
  start: (path: string, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  // A rejection is handled below. Until then it must not count as unhandled.
  after.catch(() => undefined)
  const over = new AbortController()
  const pipe = await makePipe(run, dirname(file))
  if (pipe === undefined) {
    onWaiting()
    await after
    return start(file, over.signal)
  }
  let handle: FileHandle | undefined
  try {
    const running = start(pipe, over.signal)
    const end = (): void => over.abort()
    running.then(end, end)
    handle = await openOnceRead(pipe, over.signal)
    if (handle !== undefined) {
      onWaiting()
      await Promise.race([after, running])
      await handle.write(await readFile(file)).catch(unlessReaderIsGone)
      await handle.close()
      handle = undefined
    }
    return await running
  } finally {
    over.abort()
    await handle?.close()
    await rm(pipe, { force: true })
  }
}

/** Undefined if no pipe can be created in the folder. */
async function makePipe(run: RunCommand, folder: string): Promise<string | undefined> {
  const pipe = join(folder, `.key-pipe-${randomBytes(6).toString('hex')}`)
  const made = await run('mkfifo', ['-m', '600', pipe]).catch(() => undefined)
  return made?.code === 0 ? pipe : undefined
}

/** Undefined if the tool has ended without opening the pipe: the tool itself reports why. */
async function openOnceRead(pipe: string, over: AbortSignal): Promise<FileHandle | undefined> {
  while (!over.aborted) {
    try {
      return await open(pipe, constants.O_WRONLY | constants.O_NONBLOCK)
    } catch (error) {
      // No process has the pipe open for reading.
      if ((error as NodeJS.ErrnoException).code !== 'ENXIO') throw error
      await sleep(LOOK_MS)
    }
  }
  return undefined
}

/** The tool has ended and itself reports why. */
function unlessReaderIsGone(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error
  return undefined
}

export interface WgCommandDeps {
  /** Of the same network namespace: creates, configures and removes links. */
  readonly routes: RouteTable
  readonly clock?: Clock
  readonly run?: RunCommand
}

export interface WgCommandInit {
  /** Defaults to the kernel if it supports WireGuard, else to wireguard-go. */
  readonly driver?: WireguardDriver
}

/** Created and removed only to find out whether the kernel supports WireGuard. */
const PROBE_DEVICE = 'sealane-probe'
const never = new AbortController().signal
const nothing = (): void => undefined

export class WgCommand implements Wireguard {
  readonly #routes: RouteTable
  readonly #clock: Clock
  readonly #run: RunCommand
  #driver: Promise<WireguardDriver> | undefined

  constructor(deps: WgCommandDeps, init: WgCommandInit = {}) {
    this.#routes = deps.routes
    this.#clock = deps.clock ?? new SystemClock()
    this.#run = deps.run ?? runCommand
    if (init.driver !== undefined) this.#driver = Promise.resolve(init.driver)
  }

  driver(signal?: AbortSignal): Promise<WireguardDriver> {
    this.#driver ??= this.#kernelCan(signal).then(
      (can) => (can ? 'kernel' : 'userspace'),
      (error: unknown) => {
        // The next call tries again: the signal may have caused the error.
        this.#driver = undefined
        throw error
      },
    )
    return this.#driver
  }

  async ensureDevice(
    name: string,
    init: { readonly privateKeyFile: string; readonly mtu: number },
    signal?: AbortSignal,
  ): Promise<DeviceState> {
    checkWireguardName(name)
    const link = (await this.#reachable(name, signal)) ?? (await this.#make(name, init.mtu, signal))
    await this.#wg(['set', name, 'private-key', init.privateKeyFile], signal)
    if (link.mtu !== init.mtu || !link.up) await this.#routes.setLink(name, { up: true, mtu: init.mtu }, signal)
    const state = await this.read(name, signal)
    if (state === undefined) throw new KernelError('ENODEV', `wg show ${name} dump`, 'the device no longer exists')
    return state
  }

  async read(name: string, signal?: AbortSignal): Promise<DeviceState | undefined> {
    checkWireguardName(name)
    try {
      const known = await readByUapi(name, socketPath(name), this.#clock, signal)
      if (known !== undefined) return known
      return parseDump(name, await this.#wg(['show', name, 'dump'], signal))
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }

  async sync(name: string, config: DeviceConfig, signal?: AbortSignal): Promise<void> {
    checkDeviceConfig(name, config)
    const state = await this.read(name, signal)
    if (state === undefined) throw new KernelError('ENODEV', `wg set ${name}`, `no device ${name}`)
    const words = planWgSync(state, config)
    if (words.length === 0) return
    try {
      await this.#wg(['set', name, ...words], signal)
    } catch (error) {
      throw await namingPortHolders(error, config.listenPort)
    }
  }

  async replacePeer(name: string, from: string, peer: PeerConfig, signal?: AbortSignal): Promise<void> {
    checkDeviceConfig(name, { listenPort: 0, peers: [peer] })
    checkDeviceConfig(name, { listenPort: 0, peers: [{ publicKey: from, allowedIps: [], keepaliveSeconds: 0 }] })
    await this.#wg(['set', name, ...planReplacement(from, peer)], signal)
  }

  async setKey(
    name: string,
    { privateKeyFile, places, after, onWaiting = nothing }: KeyInit,
    signal?: AbortSignal,
  ): Promise<void> {
    checkWireguardName(name)
    const peers = places.map((place) => ({ ...place, allowedIps: [], keepaliveSeconds: 0 }))
    checkDeviceConfig(name, { listenPort: 0, peers })
    const words = places.flatMap(({ publicKey, endpoint }) => [
      'peer',
      publicKey,
      'endpoint',
      formatAddressPort(endpoint),
    ])
    if (after === undefined) {
      await this.#wg(['set', name, 'private-key', privateKeyFile, ...words], signal)
      return
    }
    // Starting the tool takes longer than everything else, so it is started before `after` and waits for the key.
    await throughKeyPipe(this.#run, { file: privateKeyFile, after, onWaiting }, (path, over) =>
      this.#wg(['set', name, 'private-key', path, ...words], AbortSignal.any([over, signal ?? never])),
    )
  }

  async deleteDevice(name: string, signal?: AbortSignal): Promise<void> {
    checkWireguardName(name)
    const link = await this.#link(name, signal)
    if (link !== undefined) await this.#deleteLink(name, signal)
    if (link?.kind !== 'wireguard') await endWireguardGo(name, this.#clock, signal ?? never)
  }

  generateKey(): { readonly privateKey: string; readonly publicKey: string } {
    return generateWireguardKey()
  }

  async #make(name: string, mtu: number, signal: AbortSignal | undefined): Promise<Link> {
    if ((await this.driver(signal)) === 'kernel') await this.#routes.addLink({ kind: 'wireguard', name, mtu }, signal)
    else await startWireguardGo(name, this.#clock, signal ?? never)
    const link = await this.#link(name, signal)
    if (link === undefined)
      throw new KernelError('ENODEV', `ip link add ${name} type wireguard`, 'the device no longer exists')
    return link
  }

  /** Undefined if there is no such link. Throws EEXIST if a device of another kind has the name. */
  async #link(name: string, signal: AbortSignal | undefined): Promise<Link | undefined> {
    const link = (await this.#routes.links(signal)).find((item) => item.name === name)
    if (link === undefined || link.kind === 'wireguard') return link
    if (link.kind === 'tun' && ((await daemonsOf(name)).length > 0 || (await this.read(name, signal)) !== undefined))
      return link
    const kind = link.kind === '' ? 'hardware' : link.kind
    throw new KernelError('EEXIST', `ip link add ${name} type wireguard`, `${name} is a ${kind} device, not WireGuard`)
  }

  // A wireguard-go whose socket is unreachable (removed, or in another mount namespace) can only be replaced.
  async #reachable(name: string, signal: AbortSignal | undefined): Promise<Link | undefined> {
    const link = await this.#link(name, signal)
    if (link?.kind !== 'tun' || (await this.read(name, signal)) !== undefined) return link
    await this.deleteDevice(name, signal)
    return undefined
  }

  // Creating a device is the only sure test, because the kernel loads its module on demand.
  async #kernelCan(signal: AbortSignal | undefined): Promise<boolean> {
    try {
      await this.#routes.addLink({ kind: 'wireguard', name: PROBE_DEVICE, mtu: 1420 }, signal)
    } catch (error) {
      if (error instanceof KernelError && (error.code === 'EOPNOTSUPP' || isNotFound(error))) return false
      if (!isExists(error)) throw error
    }
    await this.#deleteLink(PROBE_DEVICE, signal)
    return true
  }

  async #deleteLink(name: string, signal: AbortSignal | undefined): Promise<void> {
    try {
      await this.#routes.deleteLink(name, signal)
    } catch (error) {
      if (!isNotFound(error)) throw error
    }
  }

  async #wg(args: readonly string[], signal: AbortSignal | undefined): Promise<string> {
    const result = await this.#run('wg', args, { signal })
    if (result.code === 0) return result.stdout
    const detail = result.stderr.trim().split('\n')[0] ?? ''
    const operation = ['wg', ...args].join(' ').slice(0, 400)
    throw new KernelError(
      classify(detail),
      operation,
      detail === '' ? `ended with ${result.code}` : detail.slice(0, 300),
    )
  }
}

const MESSAGES: readonly (readonly [RegExp, KernelErrorCode])[] = [
  // If there is no socket of wireguard-go, wg reports a missing protocol if the kernel has no WireGuard, and an
  // unsupported operation if the kernel has it but the device is of another kind.
  [/No such device|Protocol not supported|Operation not supported|Connection refused/, 'ENODEV'],
  [/No such file/, 'ENOENT'],
  [/not permitted|Permission denied/i, 'EPERM'],
  [/already in use/, 'EADDRINUSE'],
  [/invalid|not the correct length|Unable to (?:parse|find port)/i, 'EINVAL'],
]

function classify(detail: string): KernelErrorCode {
  return MESSAGES.find(([pattern]) => pattern.test(detail))?.[1] ?? 'UNKNOWN'
}
