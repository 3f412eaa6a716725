/** Checks the backends of a site's own services, and keeps their readiness. */
export { type CheckBackend, type CheckResult, backendChecker } from './check-backend.ts'
export { BackendCheckLoop } from './check-loop.ts'
