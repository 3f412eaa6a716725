/** Starts the routeagent of one node, or prints what it would apply. */
import type { Clock } from '../reconcile/clock.ts'
import { planRouteAgent, runRouteAgent } from '../routeagent/main.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import { withKernel } from './compose-kernel.ts'
import type { SiteRun } from './compose-run.ts'
import { sealaneVersion } from './context.ts'

export function run(deps: ComponentDeps, { cluster, node }: SiteRun, signal: AbortSignal): Promise<void> {
  const config = { node, version: sealaneVersion() }
  return withKernel((kernel) => runRouteAgent({ ...deps, ...kernel, cluster }, config, signal))
}

export function plan(_clock: Clock, { cluster, node }: SiteRun, signal: AbortSignal): Promise<string> {
  return withKernel((kernel) => planRouteAgent({ ...kernel, cluster }, { node }, signal))
}
