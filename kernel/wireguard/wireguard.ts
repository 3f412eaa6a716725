/** WireGuard devices, in the kernel and in user space. */
export { WgCommand } from './wg-command.ts'
export { formatDevice, formatInterface, formatPeer } from './wg-text.ts'
export {
  type DeviceConfig,
  type DeviceState,
  type KeyInit,
  type PeerConfig,
  type PeerState,
  type Wireguard,
  type WireguardDriver,
  checkDeviceConfig,
  checkWireguardName,
  generateWireguardKey,
  publicKeyOf,
} from './wireguard-device.ts'
