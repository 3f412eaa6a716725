/** Bundles for support: what is let out, and how they are read. */
export { gather } from './gather.ts'
export { readBundle } from './read-bundle.ts'
