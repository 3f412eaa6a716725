/** Runs the parts of a site, one by one or all in one process. */
export { cleanNode } from './clean.ts'
export { printPlans } from './dry-run.ts'
export { openKubeSite } from './kube-site.ts'
export { COMPONENTS, type ComponentName, type Site, hasSeveralHubs } from './part.ts'
export { type RunSiteInit, componentsOf, processMetrics, runSite } from './run-site.ts'
export { secretAccess } from './secret-access.ts'
