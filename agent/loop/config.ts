/** The configuration of the agent. compose/site/agent.ts fills it from site.yaml and flags. */
import { join } from 'node:path'
import type { Exposure } from '../../model/access/access.ts'
import { DEFAULT_ACTIVE_GATEWAYS, HEARTBEAT_MS } from '../../model/lanes/lanes.ts'
import { SYSTEM_NAMESPACE } from '../../model/model.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import { type IdentityStore, folderIdentity } from '../../protocol/membership/membership.ts'
import type { LoopInit } from '../../reconcile/reconcile.ts'

export interface AgentConfig {
  /** Key, certificate, CA and broker address, as `sealane join` wrote them. */
  readonly identity: IdentityStore
  /** The directory that keeps the replica across restarts. */
  readonly replicaDirectory: string
  /**
   * The facts that this cluster states about itself, sent to the broker whenever they change. If undefined, those it
   * joined with stay.
   */
  readonly facts: ClusterFacts | undefined
  /** Namespaces that are used although guarded (`default`, kube-*, openshift*, Sealane's own) or excluded. */
  readonly allowedNamespaces: readonly string[]
  /** Namespaces that are neither exported nor imported, besides the guarded ones. */
  readonly excludedNamespaces: readonly string[]
  /** What other members may call. If undefined, the Membership keeps what it says. */
  readonly exposure?: Exposure | undefined
  /**
   * How long a cluster may have neither a connection to the broker nor a lane to this cluster. After that, its
   * endpoints are removed here.
   */
  readonly leaseMs: number
  /** The namespace of the other clusters' Leases. */
  readonly leaseNamespace: string
  /** Whether the agent removes the objects of removed nodes. On Kubernetes, the garbage collector does so. */
  readonly removesOrphans: boolean
  /** A Node that is missing for less than this keeps its objects, since editors remove a file and write it again. */
  readonly orphanGraceMs: number
  /** The shortest time between two reports to the other members, and between two evaluations of their reports. */
  readonly reportMs: number
  /** How many gateways of this cluster are active at once. The agent replaces no more than this. */
  readonly activeGateways: number
  /** Which nodes the agent may make gateways, and whether it does so without a join. */
  readonly gatewayChoice: { readonly fillsUp: boolean; readonly nodeSelector: Readonly<Record<string, string>> }
  /** The longest time between two status writes of a gateway of this cluster. */
  readonly heartbeatMs: number
  readonly loop: LoopInit
}

/**
 * The pauses are short, so that a change reaches other clusters within milliseconds. Drift is repaired every 30 s. A
 * failure mostly concerns one object (such as a webhook that is down), and changes of other objects do not wait for it.
 */
export const AGENT_LOOP: LoopInit = {
  minMs: 2,
  resyncMs: 30_000,
  retryMinMs: 100,
  retryMaxMs: 10_000,
  pokedRetryMs: 1000,
}

/** The default configuration of a site with its state in `stateDirectory`. */
export function agentConfig(stateDirectory: string, change: Partial<AgentConfig> = {}): AgentConfig {
  return {
    identity: folderIdentity(join(stateDirectory, 'identity')),
    replicaDirectory: join(stateDirectory, 'agent'),
    facts: undefined,
    allowedNamespaces: [],
    excludedNamespaces: [],
    // Long, because a cluster that is unreachable for a while is not gone. The lanes' probes remove a dead cluster from
    // DNS and load balancing within a second anyway.
    leaseMs: 10 * 60_000,
    leaseNamespace: SYSTEM_NAMESPACE,
    removesOrphans: false,
    orphanGraceMs: 5000,
    reportMs: 5000,
    activeGateways: DEFAULT_ACTIVE_GATEWAYS,
    gatewayChoice: { fillsUp: false, nodeSelector: {} },
    heartbeatMs: HEARTBEAT_MS,
    loop: AGENT_LOOP,
    ...change,
  }
}
