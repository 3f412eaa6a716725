/**
 * WireGuard devices in memory. They keep the sessions of peers that sync() does not change, and move a prefix to the
 * peer that names it last, as the kernel does. Tests simulate peers with handshake() and traffic().
 */
import { readFile } from 'node:fs/promises'
import { type AddressPort, sameAddressPort } from '../../model/addresses/addresses.ts'
import { usualPrefix } from '../route/route.ts'
import {
  type DeviceConfig,
  type DeviceState,
  type KeyInit,
  type PeerConfig,
  type PeerState,
  type Wireguard,
  type WireguardDriver,
  checkDeviceConfig,
  checkWireguardName,
  formatDevice,
  generateWireguardKey,
  publicKeyOf,
} from '../wireguard/wireguard.ts'
import { KernelError } from '../kernel.ts'
import type { FakeRouteTable } from './fake-route-table.ts'

interface FakePeer {
  config: PeerConfig
  endpoint: AddressPort | undefined
  allowedIps: string[]
  lastHandshakeMs: number | undefined
  rxBytes: number
  txBytes: number
}

interface FakeDevice {
  publicKey: string
  listenPort: number
  mark: number
  readonly peers: Map<string, FakePeer>
}

export interface FakeWireguardInit {
  readonly driver?: WireguardDriver
  /** The route table in which the devices appear as links. */
  readonly routes?: FakeRouteTable
  /** Content of private key files by path. Other paths are read from disk. */
  readonly keyFiles?: ReadonlyMap<string, string>
}

export class FakeWireguard implements Wireguard {
  readonly #devices = new Map<string, FakeDevice>()
  readonly #init: FakeWireguardInit
  #nextFailure: KernelError | undefined
  /** Peers that sync() or replacePeer() changed, as `device publicKey`, in order. */
  readonly touched: string[] = []

  constructor(init: FakeWireguardInit = {}) {
    this.#init = init
  }

  async driver(): Promise<WireguardDriver> {
    await Promise.resolve()
    return this.#init.driver ?? 'kernel'
  }

  async ensureDevice(
    name: string,
    init: { readonly privateKeyFile: string; readonly mtu: number },
    signal?: AbortSignal,
  ): Promise<DeviceState> {
    await this.#begin(`wg set ${name} private-key`, signal)
    checkWireguardName(name)
    const publicKey = publicKeyOf(await this.#readKey(name, init.privateKeyFile))
    const device = this.#devices.get(name) ?? { publicKey, listenPort: 0, mark: 0, peers: new Map<string, FakePeer>() }
    device.publicKey = publicKey
    this.#devices.set(name, device)
    await this.#ensureLink(name, init.mtu)
    return stateOf(name, device)
  }

  async read(name: string, signal?: AbortSignal): Promise<DeviceState | undefined> {
    await this.#begin(`wg show ${name} dump`, signal)
    const device = this.#devices.get(name)
    return device === undefined ? undefined : stateOf(name, device)
  }

  async sync(name: string, config: DeviceConfig, signal?: AbortSignal): Promise<void> {
    await this.#begin(`wg set ${name}`, signal)
    checkDeviceConfig(name, config)
    const device = this.#need(name)
    const others = [...this.#devices].filter(([other]) => other !== name)
    if (config.listenPort !== 0 && others.some(([, other]) => other.listenPort === config.listenPort)) {
      throw new KernelError('EADDRINUSE', `wg set ${name} listen-port ${config.listenPort}`, 'the port is taken')
    }
    if (config.listenPort !== 0) device.listenPort = config.listenPort
    device.mark = config.mark ?? 0
    for (const key of device.peers.keys()) {
      if (config.peers.some((peer) => peer.publicKey === key)) continue
      device.peers.delete(key)
      this.touched.push(`${name} ${key}`)
    }
    for (const peer of config.peers) this.#syncPeer(name, device, peer)
  }

  async replacePeer(name: string, from: string, peer: PeerConfig, signal?: AbortSignal): Promise<void> {
    await this.#begin(`wg set ${name} peer ${from} remove`, signal)
    checkDeviceConfig(name, { listenPort: 0, peers: [peer] })
    const device = this.#need(name)
    device.peers.delete(from)
    this.#syncPeer(name, device, peer)
  }

  async setKey(
    name: string,
    { privateKeyFile, places, after, onWaiting }: KeyInit,
    signal?: AbortSignal,
  ): Promise<void> {
    await this.#begin(`wg set ${name} private-key`, signal)
    if (after !== undefined) onWaiting?.()
    await after
    if (signal?.aborted === true) throw new KernelError('EINTR', `wg set ${name} private-key`, 'stopped')
    this.#need(name).publicKey = publicKeyOf(await this.#readKey(name, privateKeyFile))
    for (const { publicKey, endpoint } of places) this.#needPeer(name, publicKey).endpoint = endpoint
  }

  async deleteDevice(name: string, signal?: AbortSignal): Promise<void> {
    await this.#begin(`ip link del ${name}`, signal)
    const known = this.#devices.delete(name)
    const routes = this.#init.routes
    if (!known || routes === undefined) return
    if ((await routes.links()).some((link) => link.name === name)) await routes.deleteLink(name)
  }

  generateKey(): { readonly privateKey: string; readonly publicKey: string } {
    return generateWireguardKey()
  }

  /** Simulates a handshake at `atMs`, from `endpoint` if given. */
  handshake(name: string, publicKey: string, atMs: number, endpoint?: AddressPort): void {
    const peer = this.#needPeer(name, publicKey)
    peer.lastHandshakeMs = atMs
    if (endpoint !== undefined) peer.endpoint = endpoint
  }

  traffic(name: string, publicKey: string, rxBytes: number, txBytes: number): void {
    const peer = this.#needPeer(name, publicKey)
    peer.rxBytes += rxBytes
    peer.txBytes += txBytes
  }

  /** Makes the next call throw this error. */
  failNext(error: KernelError): void {
    this.#nextFailure = error
  }

  deviceNames(): readonly string[] {
    return [...this.#devices.keys()].sort()
  }

  /** Returns each device in the form that `wg syncconf` reads. */
  toString(): string {
    return this.deviceNames()
      .map((name) => {
        const device = this.#need(name)
        const peers = [...device.peers.values()].map((peer): PeerConfig => ({
          publicKey: peer.config.publicKey,
          ...(peer.endpoint === undefined ? {} : { endpoint: peer.endpoint }),
          allowedIps: peer.allowedIps,
          keepaliveSeconds: peer.config.keepaliveSeconds,
        }))
        return `# ${name}\n${formatDevice({ listenPort: device.listenPort, mark: device.mark, peers })}`
      })
      .join('\n')
  }

  #syncPeer(name: string, device: FakeDevice, config: PeerConfig): void {
    const peer = device.peers.get(config.publicKey)
    const allowedIps = config.allowedIps.map(usualPrefix)
    const sameIps = peer !== undefined && [...peer.allowedIps].sort().join() === [...allowedIps].sort().join()
    const isSetAgain = config.endpoint !== undefined && config.setsEndpointAgain === true
    const sameEndpoint =
      !isSetAgain &&
      peer !== undefined &&
      (config.endpoint === undefined || sameAddressPort(config.endpoint, peer.endpoint))
    if (sameIps && sameEndpoint && peer.config.keepaliveSeconds === config.keepaliveSeconds) return
    this.touched.push(`${name} ${config.publicKey}`)
    for (const other of device.peers.values()) {
      other.allowedIps = other.allowedIps.filter((prefix) => !allowedIps.includes(prefix))
    }
    device.peers.set(config.publicKey, {
      ...(peer ?? { lastHandshakeMs: undefined, rxBytes: 0, txBytes: 0 }),
      config,
      endpoint: config.endpoint ?? peer?.endpoint,
      allowedIps,
    })
  }

  async #ensureLink(name: string, mtu: number): Promise<void> {
    const routes = this.#init.routes
    if (routes === undefined) return
    const present = (await routes.links()).find((link) => link.name === name)
    if (present === undefined) routes.putLink({ name, kind: 'wireguard', mtu, up: true, mac: '' })
    else if (!present.up || present.mtu !== mtu) await routes.setLink(name, { up: true, mtu })
  }

  async #readKey(name: string, path: string): Promise<string> {
    const given = this.#init.keyFiles?.get(path)
    if (given !== undefined) return given
    try {
      return await readFile(path, 'utf8')
    } catch (error) {
      throw new KernelError('ENOENT', `wg set ${name} private-key ${path}`, 'cannot read the file', { cause: error })
    }
  }

  async #begin(operation: string, signal: AbortSignal | undefined): Promise<void> {
    await Promise.resolve()
    if (signal?.aborted === true) throw new KernelError('EINTR', operation, 'stopped before it began')
    const failure = this.#nextFailure
    this.#nextFailure = undefined
    if (failure !== undefined) throw failure
  }

  #need(name: string): FakeDevice {
    const device = this.#devices.get(name)
    if (device === undefined) throw new KernelError('ENODEV', `wg set ${name}`, `no device ${name}`)
    return device
  }

  #needPeer(name: string, publicKey: string): FakePeer {
    const peer = this.#need(name).peers.get(publicKey)
    if (peer === undefined) throw new KernelError('ENOENT', `wg show ${name}`, `no peer ${publicKey}`)
    return peer
  }
}

function stateOf(name: string, device: FakeDevice): DeviceState {
  const peers = [...device.peers.values()].map((peer): PeerState => ({
    publicKey: peer.config.publicKey,
    ...(peer.endpoint === undefined ? {} : { endpoint: peer.endpoint }),
    allowedIps: [...peer.allowedIps].sort(),
    keepaliveSeconds: peer.config.keepaliveSeconds,
    ...(peer.lastHandshakeMs === undefined ? {} : { lastHandshakeMs: peer.lastHandshakeMs }),
    rxBytes: peer.rxBytes,
    txBytes: peer.txBytes,
  }))
  return {
    name,
    publicKey: device.publicKey,
    listenPort: device.listenPort,
    ...(device.mark === 0 ? {} : { mark: device.mark }),
    peers: peers.sort((a, b) => (a.publicKey < b.publicKey ? -1 : 1)),
  }
}
