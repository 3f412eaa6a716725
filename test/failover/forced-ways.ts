/** Leads what two sites send each other by gateways that a test chooses (sites.ts). */
import { formatAddress, parseAddress } from '../../model/values/ip.ts'
import { overlayLinkLocal } from '../../routeagent/world/plan-nodes.ts'
import type { Netns } from '../support/netns.ts'
import type { SiteAddresses, SiteName, SiteNode } from './sites.ts'

/** Looked at before any table of ours. */
const FORCED = { priority: '10', table: '999' }

/** Number of a gateway on the caller's side, then on the other. */
export type Way = readonly [near: number, far: number]

/**
 * What leads to the other site's pods on these nodes: the worker and the pods of the other gateway go to gateway `near`,
 * which sends over its device for the far gateway `far`.
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
