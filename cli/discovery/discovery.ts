/** Discovers the properties of a cluster: its CNI, its networks, its DNS, and the advice for them. */
export { type Advice, advice, hindrances } from './advice/advice.ts'
export { describeAdvice, describeDiscovery } from './describe.ts'
export { type Ask, type Discovery, discover } from './discover.ts'
export type { EarlierInstall } from './earlier-install.ts'
export { type GatewayCandidate, NO_IPV4, type UnfitNode } from './gateway-candidates.ts'
export { OTHER_PRODUCTS } from './other-products.ts'
export { type Lookable, readSnapshot, snapshotReader } from './read-snapshot.ts'
export { at, documentIn, listAt, printable, textAt, textsAt } from './snapshot.ts'
