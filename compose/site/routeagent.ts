/** Starts the route agent of one node, or prints its plan. */
import { join } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import { planRouteAgent, runRouteAgent } from '../../routeagent/main.ts'
import { type ComponentDeps, readMachineNetwork, sealaneVersion } from '../../runtime/runtime.ts'
import { withKernel } from '../compose.ts'
import type { SiteRun } from './part.ts'

export function run(
  deps: ComponentDeps,
  { config: site, api, node, heartbeatMs }: SiteRun,
  signal: AbortSignal,
): Promise<void> {
  const stateDir = join(site.state, 'nodes', node)
  const { openHostPorts: openPorts, overlay } = site
  const version = sealaneVersion()
  const config = {
    node,
    version,
    stateDir,
    openPorts,
    ...closing(site),
    overlayPort: overlay.port,
    overlayOffload: overlay.checksumOffload,
    // The CNI of a cluster owns the ports of its bridge.
    setsHairpin: site.kubernetes === undefined,
    heartbeatMs,
  }
  return withKernel((kernel) =>
    runRouteAgent({ ...deps, ...kernel, api, machineNetwork: readMachineNetwork, countsCalls: true }, config, signal),
  )
}

export function plan(_clock: Clock, { config, api, node }: SiteRun, signal: AbortSignal): Promise<string> {
  const { openHostPorts: openPorts, overlay } = config
  const init = { node, openPorts, ...closing(config), overlayPort: overlay.port }
  return withKernel((kernel) => planRouteAgent({ ...kernel, api, machineNetwork: readMachineNetwork }, init, signal))
}

/** Not stated is not the same as false. */
function closing({ failClosed }: SiteRun['config']): { readonly failClosed?: boolean } {
  return failClosed === undefined ? {} : { failClosed }
}
