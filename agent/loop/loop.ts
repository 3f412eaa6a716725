/** Common inputs of the agent's loops: configuration, metrics, findings, a writer to the local API. */
export { type AgentConfig, agentConfig } from './config.ts'
export {
  type AgentMetrics,
  type BackendMetrics,
  type LoopParts,
  agentMetrics,
  backendMetrics,
  clusterDnsGauge,
  loopDeps,
} from './metrics.ts'
export { MirrorWriter } from './mirror-writer.ts'
export { type ImportFindings, SharedFindings } from './shared-findings.ts'
