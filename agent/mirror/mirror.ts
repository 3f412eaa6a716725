/** Keeps imports in the local API, and asks the broker for the namespaces that are used here. */
export { InterestLoop } from './interest-loop.ts'
export { MirrorLoop } from './mirror-loop.ts'
