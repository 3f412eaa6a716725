/** Which links carry: probes, flap damping, traffic. */
export {
  carryingLinks,
  carryingText,
  drainingLinks,
  handedOverHealth,
  leavingNodes,
  reachedByOthers,
} from './carrying-links.ts'
export { HeardLinks } from './link-traffic.ts'
export { type LinkHealth, Probing, sizeHints } from './probing.ts'
