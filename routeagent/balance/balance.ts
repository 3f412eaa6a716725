/** The nftables table of a node: balancing of clusterset IPs, policy, counters. */
export { BalanceLoop } from './balance-loop.ts'
export { HairpinLoop, restoreHairpin } from './hairpin.ts'
export { BalancePlanner } from './plan-balancing.ts'
export { TrafficReader } from './read-traffic.ts'
export { accessSite, nodeNftWorld, planTable, serviceContext } from './plan-node-table.ts'
