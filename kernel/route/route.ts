/** Routes, rules, devices, neighbours and next hops over rtnetlink. */
export { usualAddress, usualInterfaceAddress, usualPrefix } from './address-text.ts'
export {
  cannotReplace,
  checkGroup,
  checkHop,
  checkNextHopId,
  checkReplacement,
  normalGroup,
  normalHop,
} from './check-next-hop.ts'
export {
  checkDeviceName,
  checkInterfaceAddress,
  checkMac,
  checkRoute,
  checkRule,
  normalRoute,
  refuseInvalid,
  routeMetric,
} from './check-route.ts'
export {
  formatAddress,
  formatForwardingEntry,
  formatForwardingEntryDeletion,
  formatLink,
  formatLinkChange,
  formatLinkDeletion,
  formatLookup,
  formatNeighbour,
  formatNeighbourDeletion,
  formatRoute,
  formatRouteDeletion,
  formatRule,
  formatRuleDeletion,
} from './format-ip.ts'
export {
  type KernelMessage,
  NLM_F_DUMP,
  RtnetlinkSocket,
  closeAtExit,
  errnoError,
  watchMessages,
} from './netlink-socket.ts'
export {
  type Bucket,
  NO_NEXT_HOP_FEATURES,
  type NextHopFeatures,
  type NextHopGroup,
  type NextHopListing,
  type NextHopObject,
  type NextHopTable,
  type ResilientGroup,
  formatGroup,
  formatHop,
  formatNextHopDeletion,
} from './next-hop-table.ts'
export type {
  ForwardingEntry,
  InterfaceAddress,
  Link,
  MainRoute,
  Neighbour,
  NewAddress,
  NewLink,
  NextHop,
  Route,
  RouteTable,
  Rule,
  VxlanLink,
} from './route-table.ts'
export {
  AF_INET,
  AF_INET6,
  type Attribute,
  addressBytes,
  attributes,
  body,
  nested,
  readAddress,
  readCString,
  readU16,
  readU32,
  u16,
  u16be,
  u32,
  u64,
  u8,
} from './rtnetlink-codec.ts'
export { RtnetlinkNextHops } from './rtnetlink-next-hops.ts'
export { Rtnetlink } from './rtnetlink.ts'
