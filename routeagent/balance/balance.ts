/** The nftables table of a node: balancing of clusterset IPs, policy, counters. */
export { addressFamily } from './address-family.ts'
export { BalanceLoop } from './balance-loop.ts'
export { BalancePlanner } from './plan-balancing.ts'
export { nodeNftWorld, planTable, serviceContext } from './plan-node-table.ts'
