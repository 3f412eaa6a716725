/** Forces the traffic between two sites (sites.ts) through gateways that a test chooses. */
import { formatAddress, parseAddress } from '../../model/values/ip.ts'
import { overlayLinkLocal } from '../../routeagent/world/plan-nodes.ts'
import type { Netns } from '../support/netns.ts'
import type { SiteAddresses, SiteName, SiteNode } from './sites.ts'

/** The rule comes before those of Sealane. */
const FORCED = { priority: '10', table: '999' }

/** The number of a gateway on the caller's side, then of one on the other side. */
export type Way = readonly [near: number, far: number]

/**
 * Routes the traffic of these nodes to the other site's pods: the worker and the pods of the other gateway use gateway
 * `near`, which sends over its device for the far gateway `far`.
 */
export async function forceWay(
  nodes: readonly SiteNode[],
  [near, far]: Way,
  { known, pods6 }: SiteAddresses,
  to: SiteName,
): Promise<void> {
  const gateway = nodes.find(({ name }) => name === `gw${near}`)!
  for (const { netns, name } of nodes) {
    const own = name === gateway.name
    const overlay = (via: string): string[] => ['via', via, 'dev', 'sealane-vx', 'onlink']
    const device = ['dev', `sealane${far}`]
    const link = formatAddress(overlayLinkLocal(parseAddress(gateway.address)))
    await lead(netns, '-4', `${known[to]}.0.0/16`, own ? device : overlay(gateway.address))
    if (pods6 !== undefined) await lead(netns, '-6', `${pods6[to]}::/48`, own ? device : overlay(link))
  }
}

async function lead(netns: Netns, family: '-4' | '-6', to: string, way: readonly string[]): Promise<void> {
  await netns.exec('ip', [family, 'route', 'replace', to, ...way, 'table', FORCED.table])
  const { stdout } = await netns.tryExec('ip', [family, 'rule', 'show', 'priority', FORCED.priority])
  if (stdout !== '') return
  await netns.exec('ip', [family, 'rule', 'add', 'to', to, 'lookup', FORCED.table, 'priority', FORCED.priority])
}
