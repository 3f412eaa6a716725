/** Starts the agent of a site. One of several acts; in a real cluster it joins by itself with the token it finds. */
import { joinAndRun } from '../../agent/broker/join-and-run.ts'
import { askResolver } from '../../agent/cluster/ask-resolver.ts'
import { agentConfig } from '../../agent/config.ts'
import { rememberIdentity } from '../../agent/broker/membership/remembered-identity.ts'
import { runAgent, type AgentDeps } from '../../agent/main.ts'
import { parseClusterId } from '../../model/ids.ts'
import { electionTiming } from '../../model/lanes/lease-duration.ts'
import { newProcessMark } from '../../protocol/identity/process-mark.ts'
import type { ComponentDeps } from '../../runtime/component.ts'
import { sealaneVersion } from '../../runtime/version.ts'
import type { SiteRun } from '../run.ts'
import { watchProblems } from '../problems/watch-problems.ts'
import { actInTurn } from '../site-agents.ts'

export async function run(component: ComponentDeps, site: SiteRun, signal: AbortSignal): Promise<void> {
  // One for all the times that this process acts: it is the process that the broker knows again.
  const deps = { ...component, processMark: newProcessMark() }
  const { kube, api, config } = site
  if (kube === undefined) {
    const { leases, node, leaseMs } = site
    if (leases === undefined) throw new Error('a site without Leases')
    const act = async (acting: AbortSignal): Promise<void> => {
      await runMember(deps, site, acting)
      // Standing by is ready.
      deps.status.readiness('agent', () => undefined)
    }
    const turn = { node, alone: config.gateways.length <= 1, ...electionTiming(leaseMs) }
    return actInTurn({ ...deps, api, leases }, turn, act, signal)
  }
  const identity = rememberIdentity({ ...deps, api }, kube.identity)
  const member = { ...site, identity }
  const init = {
    cluster: parseClusterId(config.name, `metadata.name of ${config.file}`),
    facts: factsOf(site),
    identity,
    memberships: kube,
    runMember: (onRefused: NonNullable<AgentDeps['onRefused']>, until: AbortSignal) =>
      runMember({ ...deps, onRefused }, member, until),
  }
  // Standing by is ready: the other one serves.
  const timing = electionTiming(site.leaseMs)
  const act = async (leading: AbortSignal): Promise<void> => {
    await joinAndRun({ ...deps, api }, init, leading)
    // Also one that has taken out what it wrote, for a cluster that leaves.
    deps.status.readiness('agent', () => undefined)
  }
  const ended = new AbortController()
  const following = identity.follow(AbortSignal.any([signal, ended.signal]))
  try {
    await kube.elect(timing, act, signal)
  } finally {
    ended.abort()
    await following
  }
}

async function runMember(
  deps: ComponentDeps & Pick<AgentDeps, 'onRefused' | 'processMark'>,
  site: SiteRun,
  signal: AbortSignal,
): Promise<void> {
  const { api, config, identity, kube, heartbeatMs } = site
  const { allowedNamespaces } = config
  const change = { facts: factsOf(site), identity, allowedNamespaces, removesOrphans: kube === undefined, heartbeatMs }
  const dns = kube === undefined ? {} : { askClusterDns: askResolver() }
  const over = new AbortController()
  const problems = watchProblems({ ...deps, api }, AbortSignal.any([signal, over.signal]))
  try {
    await runAgent({ ...deps, ...dns, api }, agentConfig(config.state, change), signal)
  } finally {
    over.abort()
    await problems
  }
}

function factsOf({ config: { podCIDRs, serviceCIDRs, labels } }: SiteRun) {
  return { podCIDRs, serviceCIDRs, labels, version: sealaneVersion() }
}
