/**
 * `sealane up --dry-run`: prints what the parts of a node would apply. It also works before the site has joined and
 * before any part has run: what only a broker or another node knows is then assumed, and the text says so.
 */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { ownCluster } from '../../model/addresses/addresses.ts'
import {
  type ClusterId,
  DEFAULT_CLUSTERSET_IP_RANGE,
  DEFAULT_GLOBAL_RANGE,
  type Kind,
  joinedMembership,
  parseClusterId,
} from '../../model/model.ts'
import { folderIdentity } from '../../protocol/membership/membership.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import type { Site } from './part.ts'
import { MODULES, type Parts, partsOf, siteRun } from './run-site.ts'

const NOT_JOINED = `# this site has not joined: the plan assumes that its addresses overlap no other member's
# and that there is no other member yet. After "sealane join" it has the real addresses.
`

/** Gives the plans of gateway and route agent as the text of nft, ip and wg. Changes nothing. Throws UserError. */
export async function printPlans(site: Site, init: Parts & { readonly signal: AbortSignal }): Promise<string> {
  const components = partsOf(site, init)
  const isMember = site.kube !== undefined || (await folderIdentity(site.config.identity).read()) !== undefined
  const cluster = isMember ? undefined : parseClusterId(site.config.name, 'site name')
  const assumed = cluster === undefined ? site : { ...site, api: await assumedApi(site, cluster, init.signal) }
  const run = await siteRun(assumed, init.node, components, cluster)
  const texts: string[] = cluster === undefined ? [] : [NOT_JOINED]
  for (const component of components) {
    const { plan } = await MODULES[component]()
    if (plan !== undefined) texts.push(await plan(new SystemClock(), run, init.signal))
  }
  return texts.join('\n')
}

/** The kinds that a user writes. */
const USER_KINDS = [
  'Node',
  'Namespace',
  'Pod',
  'Service',
  'EndpointSlice',
  'ServiceExport',
  'AccessPolicy',
  'ClusterAccessPolicy',
  'TrafficPolicy',
  'ClusterTrafficPolicy',
] as const satisfies Kind[]

/** The objects of the site, with those that a join adds. They stay in memory, so that the site remains as it is. */
async function assumedApi({ api, config }: Site, cluster: ClusterId, signal: AbortSignal): Promise<ClusterApi> {
  const { MemoryApi } = await import('../../kubeapi/memory/memory-api.ts')
  const memory = new MemoryApi()
  for (const kind of USER_KINDS) {
    const cache = api.cache(kind)
    await cache.whenSynced(signal)
    for (const object of cache.list()) memory.put(object)
  }
  const [globalRange, clustersetIpRange] = [DEFAULT_GLOBAL_RANGE, DEFAULT_CLUSTERSET_IP_RANGE]
  const ranges = { globalRange, clustersetIpRange }
  const untranslated = { podCIDRs: [], serviceCIDRs: [], globalCIDRs: [], clusterIndex: 1 }
  await memory.apply(ownCluster(cluster, config, untranslated), signal)
  const answer = { clusterset: '', observedAddress: '', ...ranges }
  const membership = joinedMembership(cluster, answer, { exposure: config.exposure })
  // The dry run shows what a broker without a default of its own would make of the site.
  await memory.apply({ ...membership, spec: { ...membership.spec, accessDefault: 'allow' } }, signal)
  return memory
}
