/** Starts the agent of a site. */
import { agentConfig } from '../agent/config.ts'
import { runAgent } from '../agent/main.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import type { SiteRun } from './compose-run.ts'
import { sealaneVersion } from './context.ts'

export function run(deps: ComponentDeps, { config, cluster }: SiteRun, signal: AbortSignal): Promise<void> {
  const { podCIDRs, serviceCIDRs, labels } = config
  const facts = { podCIDRs, serviceCIDRs, labels, version: sealaneVersion() }
  return runAgent({ ...deps, cluster }, agentConfig(config.state, { facts }), signal)
}
