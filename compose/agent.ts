/** Starts the agent of a site. In a real cluster one of several acts, and joins by itself with the token it finds. */
import { askResolver } from '../agent/cluster/ask-resolver.ts'
import { agentConfig } from '../agent/config.ts'
import { joinWithToken, rejoinWhenEnded } from '../agent/broker/join-with-token.ts'
import { type AgentDeps, runAgent } from '../agent/main.ts'
import { RefusalNote } from '../agent/broker/refusal-note.ts'
import { parseClusterId } from '../model/ids.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import type { SiteRun } from './run.ts'
import { sealaneVersion } from '../cli/context.ts'
import { keepMembership } from '../cli/site/keep-membership.ts'
import { tellBrokerWhenLeaving } from '../agent/broker/leave-by-agent.ts'
import type { KubeSite } from '../agent/broker/kube-site.ts'

export async function run(deps: ComponentDeps, site: SiteRun, signal: AbortSignal): Promise<void> {
  if (site.kube === undefined) return runMember(deps, site, signal)
  const { kube } = site
  // Standing by is ready: the other one serves.
  await kube.elect((leading) => joinAndRun(deps, { ...site, kube }, leading), signal)
}

async function joinAndRun(
  deps: ComponentDeps,
  site: SiteRun & { readonly kube: KubeSite },
  signal: AbortSignal,
): Promise<void> {
  const { cluster, config, kube } = site
  const init = {
    cluster: parseClusterId(config.name, `metadata.name of ${config.file}`),
    facts: factsOf(site),
    identity: kube.identity,
    desk: kube.identity,
  }
  await joinWithToken({ ...deps, cluster }, init, signal)
  const stop = new AbortController()
  const until = AbortSignal.any([signal, stop.signal])
  const note = new RefusalNote(deps, kube.identity, until)
  // A part that fails ends the other: the pod is started anew, and goes on from there.
  const part = (work: Promise<void>): Promise<void> =>
    work.catch((error: unknown) => (stop.abort(), Promise.reject(error as Error)))
  const member = [
    part(runMember({ ...deps, onRefused: (reason) => note.hear(reason) }, site, until)),
    part(tellBrokerWhenLeaving({ ...deps, cluster }, kube.identity, until)),
  ]
  // Nobody is left who could join anew.
  const left = Promise.all(member).then(() => stop.abort())
  const beside = [
    part(rejoinWhenEnded({ ...deps, cluster }, init, until)),
    keepMembership(deps, { cluster, kube, identity: kube.identity }, until),
  ]
  await Promise.all([left, ...beside])
}

function runMember(
  deps: ComponentDeps & Pick<AgentDeps, 'onRefused'>,
  site: SiteRun,
  signal: AbortSignal,
): Promise<void> {
  const { cluster, config, identity, kube } = site
  const { allowedNamespaces } = config
  const change = { facts: factsOf(site), identity, allowedNamespaces, removesOrphans: kube === undefined }
  const dns = kube === undefined ? {} : { askClusterDns: askResolver() }
  return runAgent({ ...deps, ...dns, cluster }, agentConfig(config.state, change), signal)
}

function factsOf({ config: { podCIDRs, serviceCIDRs, labels } }: SiteRun) {
  return { podCIDRs, serviceCIDRs, labels, version: sealaneVersion() }
}
