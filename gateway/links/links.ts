/** Checks the Clusters and Endpoints of other clusters, and plans the devices and links that follow from them. */
export { type Refusal, canLink, farEnds, linkAsAny } from './check-remotes.ts'
export {
  type LaneSuspicion,
  type LanePlan,
  type LanesPlan,
  type PlannedLink,
  isMade,
  linkMtu,
  planLanes,
  plannedLinks,
} from './plan-lanes.ts'
