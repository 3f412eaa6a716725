/** Join, leave, export and up of a site without Kubernetes. */
export { exportService, unexportService } from './export.ts'
export { joinClusterset } from './join.ts'
export { leaveNode } from './leave-node.ts'
export { confirmSiteLeave, leaveClusterset } from './leave.ts'
export { type AddedService, type BackendRow, addService, listServices, removeService } from './local-service.ts'
export type { WantedPort } from './plan-service.ts'
export { upSite } from './up.ts'
