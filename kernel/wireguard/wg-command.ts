/**
 * WireGuard through the `wg` tool, which speaks to kernel devices and to wireguard-go alike; the latter is read through
 * its socket (wireguard-go.ts). A private key is named by its file, or by a pipe from it (throughKeyPipe()): it is never an
 * argument, never an environment variable, never kept.
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

// A key file that a tool may open before it is to have the key: a named pipe (fifo(7)) in the folder of the file. The
// tool waits at it, and does the rest once the key has come. Its standard input would not do: Node gives it a socket,
// which cannot be opened by name.

interface KeyPipeInit {
  readonly file: string
  readonly after: Promise<unknown>
  /** The tool has all but the key. Called once, unless it has failed before. */
  readonly onWaiting: () => void
}

/** How often it is looked whether the tool has opened the pipe. */
const LOOK_MS = 1

/**
 * Calls `start` at once with the path of a pipe, for the tool to open, and gives what the tool gives. The tool gets what
 * is in `file` when `after` has come. Where that is rejected, the signal is aborted and this rejects with the same; as it
 * does where the tool fails. Where there can be no pipe, `start` is called after `after`, with the file itself.
 */
export async function throughKeyPipe<T>(
  run: RunCommand,
  { file, after, onWaiting }: KeyPipeInit,
  start: (path: string, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  // It is heard below, and must not count as unheard before.
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

/** Undefined: the folder takes none. */
async function makePipe(run: RunCommand, folder: string): Promise<string | undefined> {
  const pipe = join(folder, `.key-pipe-${randomBytes(6).toString('hex')}`)
  const made = await run('mkfifo', ['-m', '600', pipe]).catch(() => undefined)
  return made?.code === 0 ? pipe : undefined
}

/** Undefined once the tool has ended without: it says why itself. */
async function openOnceRead(pipe: string, over: AbortSignal): Promise<FileHandle | undefined> {
  while (!over.aborted) {
    try {
      return await open(pipe, constants.O_WRONLY | constants.O_NONBLOCK)
    } catch (error) {
      // Nobody has it open for reading.
      if ((error as NodeJS.ErrnoException).code !== 'ENXIO') throw error
      await sleep(LOOK_MS)
    }
  }
  return undefined
}

/** The tool has ended, and says why itself. */
function unlessReaderIsGone(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error
  return undefined
}

export interface WgCommandDeps {
  /** Of the same network namespace: makes, lifts and removes the links. */
  readonly routes: RouteTable
  readonly clock?: Clock
  readonly run?: RunCommand
}

export interface WgCommandInit {
  /** Default: the kernel's where it has WireGuard, else wireguard-go. */
  readonly driver?: WireguardDriver
}

/** Only made and removed to see whether the kernel can. */
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
        // Asked again next time: it may have been the signal.
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
    if (state === undefined) throw new KernelError('ENODEV', `wg show ${name} dump`, 'the device has gone again')
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
    // A start of the tool takes longer than all the rest: it has started by then, and waits for the key.
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
      throw new KernelError('ENODEV', `ip link add ${name} type wireguard`, 'the device has gone again')
    return link
  }

  /** Undefined when there is none. Throws EEXIST for a device of that name that is something else. */
  async #link(name: string, signal: AbortSignal | undefined): Promise<Link | undefined> {
    const link = (await this.#routes.links(signal)).find((item) => item.name === name)
    if (link === undefined || link.kind === 'wireguard') return link
    if (link.kind === 'tun' && ((await daemonsOf(name)).length > 0 || (await this.read(name, signal)) !== undefined))
      return link
    const kind = link.kind === '' ? 'hardware' : link.kind
    throw new KernelError('EEXIST', `ip link add ${name} type wireguard`, `${name} is a ${kind} device, not WireGuard`)
  }

  // A wireguard-go whose socket is out of reach (removed, or in another mount namespace) can only be replaced.
  async #reachable(name: string, signal: AbortSignal | undefined): Promise<Link | undefined> {
    const link = await this.#link(name, signal)
    if (link?.kind !== 'tun' || (await this.read(name, signal)) !== undefined) return link
    await this.deleteDevice(name, signal)
    return undefined
  }

  // The kernel loads its module when it is asked for such a device, so asking is the one sure test.
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
  // Without a socket of wireguard-go, wg says that the protocol is missing if the kernel has no WireGuard, and that the
  // operation is not supported if it has but the device is something else.
  [/No such device|Protocol not supported|Operation not supported|Connection refused/, 'ENODEV'],
  [/No such file/, 'ENOENT'],
  [/not permitted|Permission denied/i, 'EPERM'],
  [/already in use/, 'EADDRINUSE'],
  [/invalid|not the correct length|Unable to (?:parse|find port)/i, 'EINVAL'],
]

function classify(detail: string): KernelErrorCode {
  return MESSAGES.find(([pattern]) => pattern.test(detail))?.[1] ?? 'UNKNOWN'
}
