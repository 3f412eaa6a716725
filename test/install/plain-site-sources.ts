/**
 * Sources of a component that run only where there is no API server, so that no role needs to allow what they read.
 * compose/site/agent.ts says so for the agent: on Kubernetes the garbage collector removes orphans.
 */
export const PLAIN_SITE_SOURCES: ReadonlySet<string> = new Set(['agent/cluster/dead-nodes.ts'])
