/** What the agent can be told; compose.ts fills it from site.yaml and flags. */
import { join } from 'node:path'
import type { ClusterFacts } from '../protocol/broker-api.ts'
import type { LoopInit } from '../reconcile/loop.ts'

export interface AgentConfig {
  /** `<state>/identity`: key, certificate, CA and broker address, as written by `sealane join`. */
  readonly identityDirectory: string
  /** The replica is kept here across restarts. */
  readonly replicaDirectory: string
  /** What this cluster states about itself; told to the broker whenever it differs. Undefined: as it joined. */
  readonly facts: ClusterFacts | undefined
  /** System namespaces (kube-*, openshift*) whose services may be imported all the same. */
  readonly allowedNamespaces: readonly string[]
  readonly loop: LoopInit
}

/** Small pauses: a change should be seen elsewhere within milliseconds. Drift is repaired every 30 s. */
export const AGENT_LOOP: LoopInit = { minMs: 2, resyncMs: 30_000, retryMinMs: 100, retryMaxMs: 10_000 }

/** Defaults for a site whose state is in `stateDirectory`. */
export function agentConfig(stateDirectory: string, change: Partial<AgentConfig> = {}): AgentConfig {
  return {
    identityDirectory: join(stateDirectory, 'identity'),
    replicaDirectory: join(stateDirectory, 'agent'),
    facts: undefined,
    allowedNamespaces: [],
    loop: AGENT_LOOP,
    ...change,
  }
}
