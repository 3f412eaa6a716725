/** Configuration of the agent; compose/site/agent.ts fills it from site.yaml and flags. */
import { join } from 'node:path'
import { HEARTBEAT_MS } from '../../model/lanes/lanes.ts'
import { SYSTEM_NAMESPACE } from '../../model/model.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import { type IdentityStore, folderIdentity } from '../../protocol/membership/membership.ts'
import type { LoopInit } from '../../reconcile/reconcile.ts'

export interface AgentConfig {
  /** Key, certificate, CA and broker address, as `sealane join` left them. */
  readonly identity: IdentityStore
  /** The replica is kept here across restarts. */
  readonly replicaDirectory: string
  /** What this cluster states about itself; sent to the broker whenever it differs. Undefined: as it joined. */
  readonly facts: ClusterFacts | undefined
  /** Guarded namespaces (`default`, kube-*, openshift*, our own) whose services may be imported all the same. */
  readonly allowedNamespaces: readonly string[]
  /**
   * A cluster that had neither a connection to the broker nor a lane to this one for so long loses its endpoints here.
   */
  readonly leaseMs: number
  /** Where the Leases of the other clusters are kept. */
  readonly leaseNamespace: string
  /** Objects of nodes that are gone: on Kubernetes the garbage collector removes them. */
  readonly removesOrphans: boolean
  /** A Node that is away for less than this keeps its objects: editors remove a file and put it back. */
  readonly orphanGraceMs: number
  /** At most one report to the others, and one about what they report, in so long. */
  readonly reportMs: number
  /** How often gateways of this cluster write their status at least. */
  readonly heartbeatMs: number
  readonly loop: LoopInit
}

/**
 * Small pauses: a change should be seen elsewhere within milliseconds. Drift is repaired every 30 s. What fails is one
 * object mostly (a webhook that is down, say), and news about all the others does not wait for it.
 */
export const AGENT_LOOP: LoopInit = {
  minMs: 2,
  resyncMs: 30_000,
  retryMinMs: 100,
  retryMaxMs: 10_000,
  pokedRetryMs: 1000,
}

/** Defaults for a site whose state is in `stateDirectory`. */
export function agentConfig(stateDirectory: string, change: Partial<AgentConfig> = {}): AgentConfig {
  return {
    identity: folderIdentity(join(stateDirectory, 'identity')),
    replicaDirectory: join(stateDirectory, 'agent'),
    facts: undefined,
    allowedNamespaces: [],
    // Long, because a cluster that cannot be reached for a while is not gone. The lanes' probes take a dead cluster out
    // of DNS and balancing within a second anyway.
    leaseMs: 10 * 60_000,
    leaseNamespace: SYSTEM_NAMESPACE,
    removesOrphans: false,
    orphanGraceMs: 5000,
    reportMs: 5000,
    heartbeatMs: HEARTBEAT_MS,
    loop: AGENT_LOOP,
    ...change,
  }
}
