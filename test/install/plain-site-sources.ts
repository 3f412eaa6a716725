/**
 * Sources of a component that run only without an API server, so that no role needs to allow what they read.
 * compose/site/agent.ts explains this for the agent: on Kubernetes the garbage collector removes orphans.
 */
export const PLAIN_SITE_SOURCES: ReadonlySet<string> = new Set(['agent/cluster/dead-nodes.ts'])
