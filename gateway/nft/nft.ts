/** Translation and policy on a gateway node, as an nftables table. */
export { DropCounts } from './drop-counts.ts'
export { GatewayTable, removeGatewayTable } from './gateway-table.ts'
export { planTranslation } from './plan-translation.ts'
