/** Keeps exports at the broker, and tells their owners how they are. */
export { PublishLoop } from './publish-loop.ts'
export { ReportLoop } from './report-loop.ts'
