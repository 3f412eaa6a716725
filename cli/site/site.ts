/** Join, leave, export and up of a site without Kubernetes. */
export { exportService, unexportService } from './export.ts'
export { joinClusterset } from './join.ts'
export { leaveNode } from './leave-node.ts'
export { confirmSiteLeave, leaveClusterset } from './leave.ts'
export { upSite } from './up.ts'
