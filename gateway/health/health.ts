/** Decides which links carry traffic: probes, flap damping, traffic counts. */
export {
  carryingLinks,
  carryingText,
  drainingLinks,
  handedOverHealth,
  leavingNodes,
  reachedByOthers,
} from './carrying-links.ts'
export { HeardLinks } from './link-traffic.ts'
export { sleepRule } from './plan-sleep.ts'
export { type LinkHealth, Probing, silentElsewhere, sizeHints } from './probing.ts'
export { watchSleeping } from './sleeping-links.ts'
