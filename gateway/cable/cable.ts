/** The implementation of links: plan, observe, apply, identities. Only this room handles keys. */
export { type Agreement, agreementOf } from './agreement.ts'
export {
  type Cable,
  type CableDevice,
  type CableRotation,
  type CableRules,
  type CallChoice,
  type FarEnd,
  type LaneState,
  type LinkState,
  laneDeviceNames,
  linkKey,
} from './cable-driver.ts'
export { keepaliveSeconds } from './plan-keepalive.ts'
export { WireguardCable } from './wireguard/wireguard-cable.ts'
