/**
 * Assembles the parts of a site: those that run on this node, in one process or separately. A part is loaded only where
 * it runs, so that the others cost no memory.
 */
import { type ClusterApi, watchLeaving, whenMembership } from '../../kubeapi/kubeapi.ts'
import type { SiteConfig } from '../../kubeapi/files/files.ts'
import { InvalidAddressError, type Prefix } from '../../model/addresses/addresses.ts'
import { type ClusterId, MEMBERSHIP_NAME, type Membership, parseClusterId } from '../../model/model.ts'
import {
  HEARTBEAT_BOUNDS,
  HEARTBEAT_MS,
  LANE_LEASE_MS,
  LEASE_BOUNDS,
  isSourceAmong,
  laneSources,
} from '../../model/lanes/lanes.ts'
import { type IdentityStore, folderIdentity } from '../../protocol/membership/membership.ts'
import {
  type CallerCheck,
  type ComponentDeps,
  type StatusBoard,
  UserError,
  favourProcess,
  parseDuration,
  sealaneVersion,
} from '../../runtime/runtime.ts'
import type { LogSwitch, LogThreshold, Logger } from '../../runtime/logging/logging.ts'
import { type Metrics, createMetrics } from '../../runtime/metrics/metrics.ts'
import { memberInfo } from '../problems/problems.ts'
import { withProcess } from '../compose.ts'
import {
  type ComponentModule,
  type ComponentName,
  type MembershipInfo,
  type Site,
  type SiteRun,
  hubAddresses,
} from './part.ts'

// Reads times from the environment: the longest time between status writes of gateways, and the duration of a Lease.
// Writers and readers depend on the heartbeat, so every part of a cluster needs the same value on all nodes.

const HEARTBEAT = 'SEALANE_HEARTBEAT'
const LEASE = 'SEALANE_LEASE'

/** Gives milliseconds. Throws InvalidValueError for a text that is neither empty nor a duration within the bounds. */
export function readHeartbeat(text = ''): number {
  return text === '' ? HEARTBEAT_MS : parseDuration(text, HEARTBEAT, HEARTBEAT_BOUNDS)
}

/** The same for the duration of a lane's Lease. */
export function readLease(text = ''): number {
  return text === '' ? LANE_LEASE_MS : parseDuration(text, LEASE, LEASE_BOUNDS)
}

export interface RunSiteInit {
  readonly node: string
  /** Undefined for all parts that this node needs. */
  readonly components: readonly ComponentName[] | undefined
  readonly statusListen: readonly string[]
  readonly logLevel: LogThreshold | LogSwitch
  readonly signal: AbortSignal
  /** Is called before the parts start, once all settings have been found usable. */
  readonly onStart?: (logger: Logger) => void
}

/** Loads the module of a part. */
export const MODULES: Readonly<Record<ComponentName, () => Promise<ComponentModule>>> = {
  agent: () => import('./agent.ts'),
  gateway: () => import('./gateway.ts'),
  routeagent: () => import('./routeagent.ts'),
  dns: () => import('./dns.ts'),
  hub: () => import('./hub.ts'),
}

/** Parts that change the kernel need root, and CPU time even under load: until they act, a dead route is in use. */
const PRIVILEGED: ReadonlySet<ComponentName> = new Set(['gateway', 'routeagent'])

/**
 * The parts of a node. Each gateway node also runs the parts that a site needs: only one of the agents acts, and the
 * others are on standby. dns runs only if the site file has an address for it. The agent needs the identity of the
 * site, and the hub its objects, so both run only where the folder of the site is. With several hubs, each runs on its
 * machine, and the one that acts runs the agent.
 */
export function componentsOf({ config, remote }: Pick<Site, 'config' | 'remote'>, node: string): ComponentName[] {
  const isGateway = config.gateways.some((row) => row.node === node)
  const wanted: ComponentName[] = isGateway ? ['agent', 'dns', 'gateway', 'routeagent'] : ['routeagent']
  const isHub = (remote === undefined || remote.hub !== undefined) && hubAddresses(config).length > 0
  return [...(isHub ? (['hub'] as const) : []), ...wanted].filter((name) => {
    return (name !== 'dns' || config.dns.listen.length > 0) && (name !== 'agent' || remote === undefined)
  })
}

export type Parts = Pick<RunSiteInit, 'node' | 'components'>

/** The parts that were asked for, else those that the node needs. */
export function partsOf(site: Pick<Site, 'config' | 'remote'>, { node, components }: Parts): ComponentName[] {
  return [...new Set(components ?? componentsOf(site, node))]
}

function processName(components: readonly ComponentName[]): string {
  return components.length === 1 ? (components[0] ?? '') : 'site'
}

/** The metrics registry of the process that will run these parts. */
export function processMetrics(site: Pick<Site, 'config' | 'remote'>, parts: Parts): Metrics {
  return createMetrics(processName(partsOf(site, parts)))
}

/**
 * Runs until the signal, or until the site has left. Throws UserError for missing settings, and the errors of the
 * parts.
 */
export async function runSite(site: Site, init: RunSiteInit): Promise<void> {
  const components = partsOf(site, init)
  const run = await siteRun(site, init.node, components)
  await withProcess({ ...init, name: processName(components), metrics: site.metrics }, async (deps, started) => {
    deps.status.turnAway(laneCallers(run.api, run.config.name))
    init.onStart?.(deps.logger)
    const stop = new AbortController()
    const signal = AbortSignal.any([init.signal, stop.signal])
    let running = 0
    if (components.some((name) => PRIVILEGED.has(name))) askForProcessor(deps)
    if (run.kube !== undefined) deps.status.report('refused', run.kube.refused)
    void showMember(run, deps.metrics, signal)
    void run.remote?.keep(signal)
    const start = async (component: ComponentName): Promise<void> => {
      try {
        const module = await MODULES[component]()
        const work = (): Promise<void> =>
          module.run(deps, { ...run, membership: givenMembership(run, deps.status) }, signal)
        const ended = run.kube === undefined ? work() : againAfterLeaving(run.api, work, signal)
        running += 1
        if (running === components.length) started()
        await ended
      } catch (error) {
        // A part that fails ends the others, so that a supervisor restarts the whole process.
        stop.abort()
        throw error
      }
    }
    await Promise.all(components.map(start))
  })
}

/**
 * Keeps a pod idle while its cluster leaves, since Kubernetes would restart an ended pod again and again. It works
 * again once the cluster has left or has withdrawn the request.
 */
async function againAfterLeaving(api: Site['api'], work: () => Promise<void>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const leaving = watchLeaving(api)
    try {
      await work()
    } finally {
      leaving.close()
    }
    // If a part of a member ends by itself, the whole process is restarted.
    if (!leaving.signal.aborted) return
    await whenNotLeaving(api, signal)
  }
}

/** Must run before the parts start threads and programs, which inherit the priority. */
function askForProcessor({ logger, status }: Pick<ComponentDeps, 'logger' | 'status'>): void {
  const priority = favourProcess()
  status.report('priority', () => priority)
  logger.info('priority among processes', { ...priority })
}

/** Sets the metric about the member once it is known. */
async function showMember({ membership }: SiteRun, metrics: Metrics, signal: AbortSignal): Promise<void> {
  const info = memberInfo(metrics)
  const found = await membership(signal).catch(() => undefined)
  if (found !== undefined) info.set(1, { member: found.cluster, version: sealaneVersion() })
}

/** Reports a part that waits for the join as not ready on the status page. */
function givenMembership({ membership }: SiteRun, status: StatusBoard): SiteRun['membership'] {
  return async (signal) => {
    let joined = false
    status.readiness('membership', () => (joined ? undefined : 'waiting for this cluster to join a clusterset'))
    const found = await membership(signal)
    joined = true
    return found
  }
}

/**
 * What the parts of a node work with. `assumed` is the id of a site that has not joined, for a dry run; no identity is
 * read then. Throws UserError for missing settings, and if the site has not joined.
 */
export async function siteRun(
  site: Site,
  node: string,
  components: readonly ComponentName[],
  assumed?: ClusterId,
): Promise<SiteRun> {
  const { config } = site
  const timing = { heartbeatMs: readHeartbeat(process.env[HEARTBEAT]), leaseMs: readLease(process.env[LEASE]) }
  checkPlace(site, node, components)
  if (components.includes('gateway') && site.kube === undefined) checkGatewayNode(config, node)
  if (components.includes('dns')) checkDnsListen(config)
  const privileged = components.filter((name) => PRIVILEGED.has(name))
  if (privileged.length > 0 && process.getuid?.() !== 0) {
    throw new UserError(`${privileged.join(', ')}: must run as root: it changes routes, nftables and WireGuard`, {
      hint: 'agent and dns do not need root: select them with --component',
    })
  }
  if (site.kube !== undefined) {
    const membership = (signal: AbortSignal): Promise<MembershipInfo> => membershipByObject(site.api, signal)
    return { ...site, node, ...timing, identity: site.kube.identity, membership }
  }
  const identity = folderIdentity(config.identity)
  if (site.remote !== undefined) {
    const membership = (signal: AbortSignal): Promise<MembershipInfo> => membershipByObject(site.api, signal)
    return { ...site, node, ...timing, identity, membership }
  }
  const leftOver = `; to clean up after an earlier membership on this node: sealane leave --node ${node} --site ${config.file}`
  const membership =
    assumed === undefined
      ? await membershipByIdentity(identity, privileged.length > 0 ? leftOver : '')
      : { cluster: assumed }
  return { ...site, node, ...timing, identity, membership: () => Promise.resolve(membership) }
}

/** Checks that the parts can run where the objects of this site are. */
function checkPlace({ config, kube, remote }: Site, node: string, components: readonly ComponentName[]): void {
  if (remote !== undefined && remote.node !== node) {
    const hint = 'each node has an invitation of its own: sealane site invite'
    throw new UserError(`--node ${JSON.stringify(node)}: this file is for node ${remote.node}`, { exitCode: 2, hint })
  }
  const folderOnly = components.filter((name) => (name === 'hub' && remote?.hub === undefined) || name === 'agent')
  if (remote !== undefined && folderOnly.length > 0) {
    throw new UserError(`--component ${folderOnly.join(', ')}: runs on the node that holds the folder of the site`, {
      exitCode: 2,
    })
  }
  if (components.includes('hub') && (kube !== undefined || hubAddresses(config).length === 0)) {
    throw new UserError(`spec.hub.listen of ${config.file}: expected an address:port of this machine`)
  }
}

function checkGatewayNode({ gateways, file }: SiteConfig, node: string): void {
  const nodes = [...new Set(gateways.map((row) => row.node))]
  if (nodes.includes(node)) return
  const expected = nodes.length === 0 ? 'spec.gateways to name it, but it is empty' : `one of ${nodes.join(', ')}`
  throw new UserError(`--node ${JSON.stringify(node)}: expected ${expected} (spec.gateways of ${file})`, {
    exitCode: 2,
  })
}

function checkDnsListen({ dns, file }: SiteConfig): void {
  if (dns.listen.length > 0) return
  throw new UserError(`spec.dns.listen of ${file}: expected at least one address:port such as 10.42.0.1:53`)
}

// Recognizes callers of a status page that come by a lane. Lanes lead to pods, which include Sealane's own.
// docs/decisions/0040-status-pages.md

/**
 * Gives a check whether a status page rejects a caller, because it comes by a lane of the cluster with this id, by the
 * current objects. Accepts all callers until the objects are read: the API server, through which `diagnose` asks, has
 * addresses that no object names.
 */
export function laneCallers(api: Pick<ClusterApi, 'cache'>, cluster: string): CallerCheck {
  const [clusters, nodes] = [api.cache('Cluster'), api.cache('Node')]
  let sources: readonly Prefix[] = []
  let isStale = true
  for (const one of [clusters, nodes]) one.onChange(() => (isStale = true))
  const read = (): readonly Prefix[] => {
    try {
      return laneSources({ own: clusters.get(cluster), clusters: clusters.list(), nodes: nodes.list() })
    } catch (error) {
      // The last result stays: gateways also keep their plan if an object is malformed.
      if (error instanceof InvalidAddressError) return sources
      throw error
    }
  }
  return (source) => {
    if (isStale && clusters.synced && nodes.synced) {
      isStale = false
      sources = read()
    }
    return isSourceAmong(sources, source)
  }
}

// Finds a cluster's role in its clusterset: by the identity on a plain site, by the Membership on a Kubernetes cluster.

/**
 * Throws UserError if this site has not joined, and IdentityFileError if the identity cannot be read. `alsoTry` is
 * appended to the advice for a site that has not joined.
 */
export async function membershipByIdentity(identity: IdentityStore, alsoTry = ''): Promise<MembershipInfo> {
  const found = await identity.read()
  if (found === undefined) {
    const hint = `join first: sealane join --token-file FILE${alsoTry}`
    throw new UserError('this site has not joined a clusterset', { hint })
  }
  const { cluster, observedAddress, observedCounts } = found
  // An identity of an earlier release lacks this field. Then the gateway decides alone.
  return observedCounts === false ? { cluster } : { cluster, observedAddress }
}

/** Waits for the Membership that the agent creates when it joins. Rejects with the signal's reason. */
async function membershipByObject(api: ClusterApi, signal: AbortSignal): Promise<MembershipInfo> {
  const found = await whenMembership(api, () => true, signal)
  if (found === undefined) throw signal.reason as Error
  return membershipOf(found)
}

/** Resolves once the cluster is not leaving, or after the signal. */
function whenNotLeaving(api: Pick<ClusterApi, 'cache'>, signal: AbortSignal): Promise<void> {
  const memberships = api.cache('Membership')
  return new Promise((resolve) => {
    const look = (): void => {
      const isLeaving = memberships.get(MEMBERSHIP_NAME)?.spec.phase === 'leaving'
      if (isLeaving && !signal.aborted) return
      stop()
      signal.removeEventListener('abort', look)
      resolve()
    }
    const stop = memberships.onChange(look)
    signal.addEventListener('abort', look, { once: true })
    look()
  })
}

function membershipOf({ spec }: Membership): MembershipInfo {
  const { clusterId, observedAddress } = spec
  return { cluster: parseClusterId(clusterId), ...(observedAddress === undefined ? {} : { observedAddress }) }
}
