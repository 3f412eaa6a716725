/** What the routeagent of one node is told; everything else it reads from the cluster's objects. */
export interface RouteAgentConfig {
  /** metadata.name of this machine's Node object. */
  readonly node: string
  /** Written into RouteAgent.status. */
  readonly version?: string
}

export const DEFAULT_VERSION = 'dev'
/** Drift in the routes and in the nft table is looked for this often. */
export const RESYNC_MS = 30_000
/** Shortest time between the starts of two runs of a loop. */
export const MIN_INTERVAL_MS = 10
