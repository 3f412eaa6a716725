/** Clusters and Endpoints of others, checked, and the devices and links that follow. */
export { type Refusal, canLink, farEnds, linkAsAny } from './check-remotes.ts'
export {
  type LaneDoubt,
  type LanePlan,
  type LanesPlan,
  type PlannedLink,
  isMade,
  linkMtu,
  planLanes,
  plannedLinks,
} from './plan-lanes.ts'
