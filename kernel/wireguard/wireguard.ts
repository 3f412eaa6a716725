/**
 * WireGuard devices of this network namespace. Drivers: wg-command.ts (the `wg` tool, which speaks to kernel
 * devices and to wireguard-go alike; the device is made as a kernel link where the kernel can, else by starting
 * wireguard-go) and fake-wireguard.ts. Compliance: test/compliance/wireguard.ts.
 */
import type { AddressPort } from '../../model/addresses/address-port.ts'

export interface PeerConfig {
  /** base64. */
  readonly publicKey: string
  /** Absent: leave whatever the device has (roaming), or wait to be called. */
  readonly endpoint?: AddressPort
  /**
   * The endpoint is set also where the device has it already. The device then forgets from which address of its own it
   * sent there; the session lives on.
   */
  readonly endpointAnew?: true
  /** CIDRs of either family, in their usual form (`fd00::/64`). */
  readonly allowedIps: readonly string[]
  /** Seconds; 0 is off. */
  readonly keepaliveSeconds: number
}

export interface DeviceConfig {
  readonly listenPort: number
  /** On each packet that the device itself sends (SO_MARK); 0 or absent: none. */
  readonly mark?: number
  readonly peers: readonly PeerConfig[]
}

export interface KeyInit {
  readonly privateKeyFile: string
  readonly places: readonly Required<Pick<PeerConfig, 'publicKey' | 'endpoint'>>[]
  /** Nothing changes before it has come, and then at once: all else is ready by then. Where it is rejected nothing does. */
  readonly after?: Promise<unknown>
  /** Called before `after` is waited for: all else is ready. Not called where it failed before. */
  readonly onWaiting?: () => void
}

export interface PeerState {
  readonly publicKey: string
  readonly endpoint?: AddressPort
  readonly allowedIps: readonly string[]
  readonly keepaliveSeconds: number
  /** Milliseconds since 1970; absent before the first handshake. */
  readonly lastHandshakeMs?: number
  readonly rxBytes: number
  readonly txBytes: number
}

export interface DeviceState {
  readonly name: string
  readonly publicKey: string
  readonly listenPort: number
  /** DeviceConfig.mark; absent: none. */
  readonly mark?: number
  readonly peers: readonly PeerState[]
}

export type WireguardDriver = 'kernel' | 'userspace'

export interface Wireguard {
  /** Which implementation ensureDevice() uses here. */
  driver(signal?: AbortSignal): Promise<WireguardDriver>
  /**
   * Makes sure that the device exists, is up, and has the key in `privateKeyFile`. Gives its state. A device of
   * that name which is already there is kept with its sessions. Throws KernelError.
   */
  ensureDevice(
    name: string,
    init: { readonly privateKeyFile: string; readonly mtu: number },
    signal?: AbortSignal,
  ): Promise<DeviceState>
  /** Undefined when there is no such device. */
  read(name: string, signal?: AbortSignal): Promise<DeviceState | undefined>
  /** Changes only what differs: sessions of unchanged peers live on. Peers not named are removed. */
  sync(name: string, config: DeviceConfig, signal?: AbortSignal): Promise<void>
  /**
   * In one step, and in one start of a tool: the peer `from` goes, and `peer` is made anew, also where it is `from`.
   * Throws KernelError.
   */
  replacePeer(name: string, from: string, peer: PeerConfig, signal?: AbortSignal): Promise<void>
  /** The key of the device from now on, and in the same step the endpoints of peers that it has. Throws KernelError. */
  setKey(name: string, init: KeyInit, signal?: AbortSignal): Promise<void>
  /** Removes the device, and with it a userspace process. Absent is fine. */
  deleteDevice(name: string, signal?: AbortSignal): Promise<void>
  /** A new private key, base64, and its public key. */
  generateKey(): { readonly privateKey: string; readonly publicKey: string }
}
