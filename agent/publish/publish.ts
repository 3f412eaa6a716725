/** Keeps this cluster's exports at the broker, and reports the state of exports and policies in conditions. */
export { AccessPolicyLoop } from './access-policy-loop.ts'
export { PublishLoop } from './publish-loop.ts'
export { ReportLoop } from './report-loop.ts'
export { TrafficPolicyLoop } from './traffic-policy-loop.ts'
