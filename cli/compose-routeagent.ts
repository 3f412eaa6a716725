/** Starts the routeagent of one node, or prints what it would apply. */
import { join } from 'node:path'
import type { Clock } from '../reconcile/clock.ts'
import { planRouteAgent, runRouteAgent } from '../routeagent/main.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import { readMachineNetwork } from '../runtime/machine-network.ts'
import { withKernel } from './compose-kernel.ts'
import type { SiteRun } from './compose-run.ts'
import { sealaneVersion } from './context.ts'

export function run(deps: ComponentDeps, { config: site, cluster, node }: SiteRun, signal: AbortSignal): Promise<void> {
  const config = { node, version: sealaneVersion(), stateDir: join(site.state, 'nodes', node) }
  return withKernel((kernel) =>
    runRouteAgent({ ...deps, ...kernel, cluster, machineNetwork: readMachineNetwork }, config, signal),
  )
}

export function plan(_clock: Clock, { cluster, node }: SiteRun, signal: AbortSignal): Promise<string> {
  return withKernel((kernel) =>
    planRouteAgent({ ...kernel, cluster, machineNetwork: readMachineNetwork }, { node }, signal),
  )
}
