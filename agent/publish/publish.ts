/** Keeps this cluster's exports at the broker, and reports the state of exports and policies in conditions. */
export { AccessPolicyLoop, TrafficPolicyLoop } from './policy-loops.ts'
export { PublishLoop } from './publish-loop.ts'
export { ReportLoop } from './report-loop.ts'
