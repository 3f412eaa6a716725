/** Translation and policy on a gateway node, as an nftables table. */
export { NftApplier, removeTable } from './apply-nft.ts'
export { DropCounts } from './drop-counts.ts'
export { planTranslation } from './plan-translation.ts'
