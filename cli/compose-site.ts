/** Puts the parts of a site together: which run on this node, with which drivers, in one process or alone. */
import { join } from 'node:path'
import { agentConfig } from '../agent/config.ts'
import { runAgent } from '../agent/main.ts'
import { dnsConfig } from '../dns/config.ts'
import { runDns } from '../dns/main.ts'
import {
  type GatewayConfig,
  describeGatewayPlan,
  gatewayConfig,
  readGatewayWorld,
  runGateway,
  whenCachesSynced,
} from '../gateway/main.ts'
import { NftSession } from '../kernel/nft-session.ts'
import { ProcSysctl } from '../kernel/proc-sysctl.ts'
import { Rtnetlink } from '../kernel/rtnetlink.ts'
import { WgCommand } from '../kernel/wg-command.ts'
import type { ClusterApi } from '../cluster/cluster-api.ts'
import { MEMBERSHIP_NAME } from '../model/objects.ts'
import { type MemberIdentity, readMemberIdentity } from '../protocol/identity/member-files.ts'
import { planRouteAgent, runRouteAgent } from '../routeagent/main.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import type { LogThreshold } from '../runtime/pino-logger.ts'
import { SystemClock } from '../reconcile/clock.ts'
import { UserError } from '../runtime/user-error.ts'
import { withProcess } from './compose-process.ts'
import { sealaneVersion } from './context.ts'
import type { OpenSite } from './site.ts'

export const COMPONENTS = ['agent', 'gateway', 'routeagent', 'dns'] as const
export type ComponentName = (typeof COMPONENTS)[number]

export interface RunSiteInit {
  readonly node: string
  /** Undefined: all that this node needs. */
  readonly components: readonly ComponentName[] | undefined
  readonly statusListen: string
  readonly logLevel: LogThreshold
  readonly signal: AbortSignal
}

interface Kernel {
  readonly routes: Rtnetlink
  readonly nft: NftSession
  readonly wireguard: WgCommand
  readonly sysctl: ProcSysctl
}

/** Parts that change the kernel need root. */
const PRIVILEGED: ReadonlySet<ComponentName> = new Set(['gateway', 'routeagent'])

/** The first gateway's node also carries what a site needs once. */
export function componentsOf({ config }: OpenSite, node: string): ComponentName[] {
  const once: ComponentName[] = config.gateways[0]?.node === node ? ['agent', 'dns'] : []
  const gateway: ComponentName[] = config.gateways.some((row) => row.node === node) ? ['gateway'] : []
  return [...once, ...gateway, 'routeagent']
}

/** Runs until stopped, or until the site has left. Throws UserError for what is missing; the rest is the parts' own. */
export async function runSite(site: OpenSite, init: RunSiteInit): Promise<void> {
  const components = init.components ?? componentsOf(site, init.node)
  const identity = await checkStart(site, init.node, components)
  await withProcess({ name: components.length === 1 ? (components[0] ?? '') : 'site', ...init }, async (process) => {
    const kernel = openKernel()
    const stop = new AbortController()
    const signal = AbortSignal.any([init.signal, stop.signal])
    const deps = { ...process, ...kernel, cluster: site.cluster }
    try {
      // One part that fails ends the others: a supervisor restarts the whole.
      const parts = components.map((name) => runComponent(name, deps, site, init.node, identity, signal))
      await Promise.all(parts.map((part) => part.catch((error: unknown) => fail(error, stop))))
    } finally {
      stop.abort()
      kernel.nft.close()
      kernel.routes.close()
    }
  })
}

function fail(error: unknown, stop: AbortController): never {
  stop.abort()
  throw error
}

type SiteDeps = ComponentDeps & Kernel & { readonly cluster: ClusterApi }

function runComponent(
  name: ComponentName,
  deps: SiteDeps,
  site: OpenSite,
  node: string,
  identity: MemberIdentity,
  signal: AbortSignal,
): Promise<void> {
  const { config } = site
  switch (name) {
    case 'agent': {
      const { podCIDRs, serviceCIDRs, labels } = config
      const facts = { podCIDRs, serviceCIDRs, labels, version: sealaneVersion() }
      return runAgent(deps, agentConfig(config.state, { facts }), signal)
    }
    case 'gateway':
      return runGateway(deps, gatewayConfigOf(site, node, identity), signal)
    case 'routeagent':
      return runRouteAgent(deps, { node, version: sealaneVersion() }, signal)
    case 'dns':
      return runDns(deps, dnsConfig({ clusterId: identity.cluster, ...config.dns }), untilLeft(site.cluster, signal))
  }
}

function gatewayConfigOf({ config }: OpenSite, node: string, identity: MemberIdentity): GatewayConfig {
  return gatewayConfig({
    node,
    version: sealaneVersion(),
    stateDir: join(config.state, 'nodes', node),
    observedAddress: identity.observedAddress,
    lanes: config.gateways.filter((row) => row.node === node),
  })
}

/** What `up --dry-run` prints: the text that gateway and routeagent would apply now. */
export async function printPlans(
  site: OpenSite,
  init: Pick<RunSiteInit, 'node' | 'components' | 'signal'>,
): Promise<string> {
  const components = init.components ?? componentsOf(site, init.node)
  const identity = await checkStart(site, init.node, components)
  const kernel = openKernel()
  const deps = { ...kernel, clock: new SystemClock(), cluster: site.cluster }
  const texts: string[] = []
  try {
    if (components.includes('gateway')) {
      await whenCachesSynced(site.cluster, init.signal)
      const world = await readGatewayWorld(deps, gatewayConfigOf(site, init.node, identity), init.signal)
      texts.push(world === undefined ? "# waiting for this cluster's own Cluster object\n" : describeGatewayPlan(world))
    }
    if (components.includes('routeagent')) texts.push(await planRouteAgent(deps, { node: init.node }, init.signal))
  } finally {
    kernel.nft.close()
    kernel.routes.close()
  }
  return texts.join('\n')
}

function openKernel(): Kernel {
  const routes = new Rtnetlink()
  return { routes, nft: new NftSession(), wireguard: new WgCommand({ routes }), sysctl: new ProcSysctl() }
}

async function checkStart(
  { config }: OpenSite,
  node: string,
  components: readonly ComponentName[],
): Promise<MemberIdentity> {
  if (components.some((name) => PRIVILEGED.has(name)) && process.getuid?.() !== 0) {
    throw new UserError(`${components.join(', ')}: must run as root (it changes routes, nftables and WireGuard)`)
  }
  if (components.includes('gateway') && !config.gateways.some((row) => row.node === node)) {
    throw new UserError(`node ${JSON.stringify(node)}: not among spec.gateways of ${config.file}`, { exitCode: 2 })
  }
  const identity = await readMemberIdentity(config.identity)
  if (identity === undefined) {
    throw new UserError('this site has not joined a clusterset', { hint: 'first: sealane join --token-file FILE' })
  }
  return identity
}

/** DNS has nothing to take down; it ends when the membership does. */
function untilLeft(cluster: ClusterApi, signal: AbortSignal): AbortSignal {
  const left = new AbortController()
  const memberships = cluster.cache('Membership')
  const look = (): void => {
    if (memberships.synced && memberships.get(MEMBERSHIP_NAME) === undefined) left.abort(new Error('the site has left'))
  }
  memberships.onChange(look)
  look()
  return AbortSignal.any([signal, left.signal])
}
