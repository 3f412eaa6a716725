/** Keeps imports in the local API, and requests the records of the namespaces that exist here. */
export { InterestLoop } from './interest-loop.ts'
export { MirrorLoop } from './mirror-loop.ts'
