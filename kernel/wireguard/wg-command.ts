/**
 * WireGuard through the `wg` tool, which speaks to kernel devices and to wireguard-go alike; the latter is read through
 * its socket (wireguard-go.ts). A private key is named by its file, or by a pipe from it (throughKeyPipe()): it is never an
 * argument, never an environment variable, never kept.
 */
import { formatAddressPort } from '../../model/addresses/address-port.ts'
import { SystemClock, type Clock } from '../../reconcile/clock.ts'
import { checkDeviceConfig, checkWireguardName } from './check-wireguard.ts'
import { isExists, isNotFound, KernelError, type KernelErrorCode } from '../errors.ts'
import { throughKeyPipe } from './key-pipe.ts'
import { parseDump } from './parse-wg.ts'
import { planReplacement, planWgSync } from './plan-wg-sync.ts'
import { namingPortHolders } from '../port-holders.ts'
import type { Link, RouteTable } from '../route/route-table.ts'
import { type RunCommand, runCommand } from '../run-command.ts'
import { readByUapi } from './uapi-dump.ts'
import { daemonsOf, endWireguardGo, socketPath, startWireguardGo } from './wireguard-go.ts'
import { generateWireguardKey } from './wireguard-key.ts'
import type { DeviceConfig, DeviceState, KeyInit, PeerConfig, Wireguard, WireguardDriver } from './wireguard.ts'

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
