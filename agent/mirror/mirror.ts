/** Keeps imports and derived Services in the local API, and requests the records of the namespaces that exist here. */
export { DerivedLoop } from './derived-loop.ts'
export { InterestLoop } from './interest-loop.ts'
export { MirrorLoop } from './mirror-loop.ts'
