/**
 * Starts the agent of a site. Only one of several agents acts. In a Kubernetes cluster, it joins with the token that it
 * finds.
 */
import { randomBytes } from 'node:crypto'
import { backendChecker } from '../../agent/backends/backends.ts'
import { askResolver } from '../../agent/cluster/cluster.ts'
import { agentConfig } from '../../agent/loop/loop.ts'
import { type AgentDeps, runAgent } from '../../agent/main.ts'
import { type MemberParts, joinAndRun, rememberIdentity } from '../../agent/membership/membership.ts'
import { AGENT_LEASE } from '../../install/values/values.ts'
import { type ClusterApi, ClusterApiError, type LeaseStore } from '../../kubeapi/kubeapi.ts'
import { Election, type ElectionDeps } from '../../kubeapi/lease/lease.ts'
import { parseClusterId } from '../../model/model.ts'
import { type ElectionTiming, electionTiming } from '../../model/lanes/lanes.ts'
import { newProcessMark } from '../../protocol/identity/identity.ts'
import { type ComponentDeps, sealaneVersion } from '../../runtime/runtime.ts'
import { watchProblems } from '../problems/problems.ts'
import { type SiteRun, untilLeft } from './part.ts'

// Elects the acting agent of a site without Kubernetes: the one that holds the Lease in the state folder.

interface SiteAgentsInit extends Partial<ElectionTiming> {
  readonly node: string
  /** Whether no other node of the site has an agent. It then acts even if Leases cannot be written. */
  readonly alone: boolean
  /** Every other agent has ended for certain. Default: false. */
  readonly isOnly?: boolean
}

/**
 * Calls `act` while this process is the leader. A new process takes the Lease of a dead process on the same node
 * without waiting. Resolves after the signal, when `act` ends by itself, or when the site has left.
 */
export async function actInTurn(
  deps: Omit<ElectionDeps, 'leader'> & { readonly api: Pick<ClusterApi, 'cache'> },
  { node, alone, isOnly = false, ...timing }: SiteAgentsInit,
  act: (signal: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  // Node names have no '_'.
  const ofNode = `${node}_`
  const identity = `${ofNode}${randomBytes(4).toString('hex')}`
  const replaces = (holder: string): boolean => isOnly || holder.startsWith(ofNode)
  const over = new AbortController()
  const without = new AbortController()
  const leases: LeaseStore = {
    read: (name, until) => deps.leases.read(name, until),
    write: async (lease, until) => {
      try {
        return await deps.leases.write(lease, until)
      } catch (error) {
        if (alone && error instanceof ClusterApiError && error.code === 'Forbidden') without.abort(error)
        throw error
      }
    },
  }
  const election = new Election(
    { ...deps, leases, leader: UNCOUNTED },
    { name: AGENT_LEASE, identity, replaces, ...timing },
  )
  const left = untilLeft(deps.api, signal)
  let acts = false
  // The acting agent removes what it wrote, and ends by itself.
  const look = (): void => {
    if (left.aborted && !acts) over.abort(left.reason)
  }
  left.addEventListener('abort', look)
  look()
  const inOffice = async (office: AbortSignal): Promise<void> => {
    acts = true
    try {
      await act(office)
    } finally {
      acts = false
      look()
    }
  }
  await election.run(inOffice, AbortSignal.any([signal, over.signal, without.signal]))
  if (without.signal.aborted) await act(signal)
}

/** The file leases/sealane-agent of a site's state shows the leader, so there is no metric. */
const UNCOUNTED = { set: (): void => undefined }

export async function run(component: ComponentDeps, site: SiteRun, signal: AbortSignal): Promise<void> {
  // One mark for all terms of this process, since the broker recognizes the process by it.
  const deps = { ...component, processMark: newProcessMark() }
  const { kube, api, config } = site
  if (kube === undefined) {
    const { leases, node, leaseMs, isOnlyAgent: isOnly = false } = site
    if (leases === undefined) throw new Error('a site without Leases')
    const act = async (acting: AbortSignal): Promise<void> => {
      await runMember(deps, site, acting)
      // A standby agent is ready.
      deps.status.readiness('agent', () => undefined)
    }
    const turn = { node, alone: config.gateways.length <= 1, isOnly, ...electionTiming(leaseMs) }
    return actInTurn({ ...deps, api, leases }, turn, act, signal)
  }
  const identity = rememberIdentity({ ...deps, api }, kube.identity)
  const member = { ...site, identity }
  const init = {
    cluster: parseClusterId(config.name, `metadata.name of ${config.file}`),
    facts: factsOf(site),
    identity,
    memberships: kube,
    exposure: config.exposure,
    runMember: (parts: MemberParts, until: AbortSignal) => runMember({ ...deps, ...parts }, member, until),
  }
  // A standby agent is ready, since the leader serves.
  const timing = electionTiming(site.leaseMs)
  const act = async (leading: AbortSignal): Promise<void> => {
    await joinAndRun({ ...deps, api }, init, leading)
    // An agent that has removed what it wrote, for a cluster that leaves, is also ready.
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
  deps: ComponentDeps & Pick<AgentDeps, 'onRefused' | 'membershipChanges' | 'processMark'>,
  site: SiteRun,
  signal: AbortSignal,
): Promise<void> {
  const { api, config, identity, kube, heartbeatMs } = site
  const { allowedNamespaces, excludedNamespaces, activeGateways, exposure } = config
  const change = {
    facts: factsOf(site),
    identity,
    allowedNamespaces,
    excludedNamespaces,
    exposure,
    removesOrphans: kube === undefined,
    heartbeatMs,
    activeGateways,
    ...(kube === undefined ? {} : { gatewayChoice: kube.gatewayChoice }),
  }
  // A kubelet checks the pods of a Kubernetes cluster, and such a cluster has a DNS of its own.
  const local =
    kube === undefined
      ? { checkBackend: backendChecker(deps.clock) }
      : {
          ...{ askClusterDns: askResolver(), dnsMaps: kube.dnsMaps },
          ...{ changeMembership: kube.changeMembership, noteRelays: kube.noteRelays },
        }
  const gatewayMarker = kube?.gatewayMarker
  const nodes = gatewayMarker === undefined ? {} : { gatewayMarker }
  const over = new AbortController()
  const problems = watchProblems({ ...deps, api }, AbortSignal.any([signal, over.signal]))
  try {
    await runAgent({ ...deps, ...local, ...nodes, api }, agentConfig(config.state, change), signal)
  } finally {
    over.abort()
    await problems
  }
}

function factsOf({ config: { podCIDRs, serviceCIDRs, labels } }: SiteRun) {
  return { podCIDRs, serviceCIDRs, labels, version: sealaneVersion() }
}
