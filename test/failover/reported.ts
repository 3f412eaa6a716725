/** The reports of gateways and workers of two sites (sites.ts), as far as their processes run. */
import type { Endpoint, Gateway } from '../../model/objects.ts'
import type { SiteNode, TwoSites } from './sites.ts'

export function statusOf({ process, name }: SiteNode): Gateway['status'] {
  return (process?.get('Gateway', name) as Gateway | undefined)?.status
}

export function linkStates(gateway: SiteNode): string[] {
  return (statusOf(gateway)?.connections ?? []).map(({ state }) => state)
}

/** The links that are down: `milano-gw0 1` is that gateway's link with lane 1. */
export function downLinks({ nodes }: TwoSites): string {
  return nodes
    .flatMap((gateway) => {
      const down = (statusOf(gateway)?.connections ?? []).filter(({ state }) => state === 'down')
      return down.map(({ remoteLane }) => `${gateway.port} ${remoteLane}`)
    })
    .sort()
    .join(', ')
}

/** The gateways that the worker uses to the other site, by its own report. Undefined: it has not reported any. */
export function usedBy({ process }: SiteNode): readonly string[] | undefined {
  const agent = process?.get('RouteAgent', 'worker')
  return agent?.kind === 'RouteAgent' ? agent.status?.clusters[0]?.gateways : undefined
}

export function workerOf({ nodes }: TwoSites, { site }: Pick<SiteNode, 'site'>): SiteNode {
  const found = nodes.find((one) => one.site === site && one.name === 'worker')
  if (found === undefined) throw new Error(`${site} has no worker`)
  return found
}

function endpointOf({ process, site, name }: SiteNode): Endpoint['spec'] | undefined {
  return (process?.get('Endpoint', `${site}.${name}-lane${name.slice(2)}`) as Endpoint | undefined)?.spec
}

export const keyOf = (gateway: SiteNode): string | undefined => endpointOf(gateway)?.publicKey
export const announcesKey = (gateway: SiteNode): boolean => endpointOf(gateway)?.nextPublicKey !== undefined
