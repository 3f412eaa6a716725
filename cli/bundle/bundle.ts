/** Support bundles: what they may contain, and how they are written and read. */
export { gather } from './gather.ts'
export { type BundleObjects, bundledObjects, readBundle, readWholeBundle } from './read-bundle.ts'
