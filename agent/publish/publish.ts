/** Keeps this cluster's exports at the broker, and reports their state in their conditions. */
export { PublishLoop } from './publish-loop.ts'
export { ReportLoop } from './report-loop.ts'
