/** Support bundles: what they may contain, and how they are written and read. */
export { gather } from './gather.ts'
export { readBundle } from './read-bundle.ts'
