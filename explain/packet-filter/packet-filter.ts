/** Evaluates NetworkPolicies and nftables rules for Sealane's packets. */
export {
  type Addresses,
  type Direction,
  type OtherRange,
  type PodPort,
  type PolicyRule,
  isAbout,
  letThrough,
  meets,
  opens,
  otherRanges,
  rangesText,
  rulesOf,
  selects,
  selectsAll,
} from './network-policy.ts'
export { type Drop, type Packet, dropOf } from './nft-chains.ts'
