/** Tuning of the kernel: sysctl, segment joining, packet steering, checksum offload, bridge ports. */
export { type BridgePort, type BridgePorts, SysfsBridgePorts, hairpinCommand } from './bridge-ports.ts'
export {
  type ChecksumOffload,
  EthtoolChecksumOffload,
  type OffloadMachine,
  type OffloadPlan,
  planOffload,
} from './checksum-offload.ts'
export { type DevicePackets, possibleCpus, readDevicePackets } from './device-packets.ts'
export { type DeviceSetting, deviceSettings, ensureDeviceSettings } from './device-settings.ts'
export { ensureForwarding, restoreForwarding } from './ip-forwarding.ts'
export { type PacketSteering, SysfsPacketSteering } from './packet-steering.ts'
export { ProcSysctl } from './proc-sysctl.ts'
export {
  type Joining,
  type ReceiveCoalescing,
  type SegmentJoining,
  SysfsReceiveCoalescing,
  VethSegmentJoining,
} from './segment-joining.ts'
export { type Sysctl, sysctlPath } from './sysctl.ts'
