/** Starts the gateway of one node, or prints its plan. */
import { join } from 'node:path'
import {
  type GatewayConfig,
  describeGatewayPlan,
  gatewayConfig,
  readGatewayWorld,
  whenCachesSynced,
} from '../../gateway/main.ts'
import { WireguardCable } from '../../gateway/cable/cable.ts'
import { runLabelledGateway } from '../../gateway/lease/lease.ts'
import {
  type GatewayLabel,
  type GatewayLane,
  LABEL_GATEWAY,
  MAX_LANE,
  gatewayLabel,
  gatewayProblem,
  laneOfHolder,
  withGatewayLabels,
} from '../../model/lanes/lanes.ts'
import type { Node } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type ComponentDeps, UserError, readMachineNetwork, sealaneVersion } from '../../runtime/runtime.ts'
import { readSiteFile } from '../../kubeapi/files/files.ts'
import type { LeaseStore } from '../../kubeapi/kubeapi.ts'
import { withKernel } from '../compose.ts'
import type { SiteRun } from './part.ts'

export async function run(deps: ComponentDeps, site: SiteRun, signal: AbortSignal): Promise<void> {
  const configOf = await configFor(site, signal)
  const { api, config, kube, node, leaseMs } = site
  await withKernel(async (kernel) => {
    const cable = new WireguardCable({ ...kernel, clock: deps.clock }, { stateDir: stateDirOf(site) })
    const parts = { ...deps, ...kernel, api, cable, machineNetwork: readMachineNetwork }
    const askNode = (until: AbortSignal) => (kube === undefined ? askSiteFile(site) : kube.askNode(node, until))
    const { activeGateways, overlay } = config
    const leases = kube?.leases ?? leasesOf(site)
    const init = { node, configOf, askNode, leases, activeGateways, overlayPort: overlay.port, leaseMs }
    return runLabelledGateway(parts, init, await labelAtStart(site, signal), signal)
  })
}

export async function plan(clock: Clock, site: SiteRun, signal: AbortSignal): Promise<string> {
  const configOf = await configFor(site, signal)
  const { api } = site
  await whenCachesSynced(api, signal)
  const lanes = [await gatewayOnly(site, signal)]
  return withKernel(async (kernel) => {
    const cable = new WireguardCable({ ...kernel, clock }, { stateDir: stateDirOf(site) })
    const world = await readGatewayWorld(
      { ...kernel, clock, api, cable, machineNetwork: readMachineNetwork },
      configOf(lanes),
      signal,
    )
    if (world === undefined) return "# waiting for this cluster's own Cluster object\n"
    return describeGatewayPlan(world, cable.rules)
  })
}

const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS

type ConfigOf = (lanes: readonly GatewayLane[]) => GatewayConfig

async function configFor(site: SiteRun, signal: AbortSignal): Promise<ConfigOf> {
  const { config, node, membership, heartbeatMs } = site
  const { observedAddress } = await membership(signal)
  const { keyRotationDays, linkSleepMinutes } = config
  return (lanes) =>
    gatewayConfig({
      node,
      version: sealaneVersion(),
      stateDir: stateDirOf(site),
      ...(observedAddress === undefined ? {} : { observedAddress }),
      openPorts: config.openHostPorts,
      failClosed: config.failClosed === true,
      heartbeatMs,
      ...(keyRotationDays === undefined ? {} : { keyMaxAgeMs: keyRotationDays * DAY_MS }),
      ...(linkSleepMinutes === undefined ? {} : { sleepAfterMs: linkSleepMinutes * MINUTE_MS }),
      lanes,
    })
}

function stateDirOf({ config, node }: SiteRun): string {
  return join(config.state, 'nodes', node)
}

/** The Node of this process. Throws UserError if there is none. */
async function ownNode({ api, node }: SiteRun, signal: AbortSignal): Promise<Node> {
  const nodes = api.cache('Node')
  await nodes.whenSynced(signal)
  const object = nodes.get(node)
  if (object === undefined) throw new UserError(`--node ${node}: this cluster has no such Node`)
  return object
}

/**
 * The gateway settings from the Node's labels, or from the site file of a site. Undefined if the node is not a gateway.
 * Throws UserError and GatewayNodeError.
 */
async function labelOf(site: SiteRun, signal: AbortSignal): Promise<GatewayLabel | undefined> {
  return gatewayLabel(await labelledNode(site, signal), site.config.overlay.port)
}

/** The same for a starting process, which a Node that cannot be a gateway must not end. */
async function labelAtStart(site: SiteRun, signal: AbortSignal): Promise<GatewayLabel | 'unusable' | undefined> {
  const problem = gatewayProblem(await labelledNode(site, signal), site.config.overlay.port)
  return problem === undefined ? labelOf(site, signal) : 'unusable'
}

/** The Node of this process; on a site, with what the site file says about it. */
async function labelledNode(site: SiteRun, signal: AbortSignal): Promise<Node> {
  return site.kube === undefined ? asStated(site.config.gateways, site.node) : ownNode(site, signal)
}

function asStated(gateways: SiteRun['config']['gateways'], name: string): Node {
  return withGatewayLabels({ apiVersion: 'v1', kind: 'Node', metadata: { name } }, gateways)
}

/**
 * Makes a Node from the current site file, which may have changed since this process started. Throws InvalidFileError.
 */
async function askSiteFile({ config, node }: SiteRun): Promise<Node> {
  const { gateways } = await readSiteFile(config.file)
  return asStated(gateways, node)
}

function leasesOf({ leases }: SiteRun): LeaseStore {
  if (leases === undefined) throw new Error('a site without Leases')
  return leases
}

async function gatewayOnly(site: SiteRun, signal: AbortSignal): Promise<GatewayLane> {
  const { api, node } = site
  const label = await labelOf(site, signal)
  if (label === undefined) throw new UserError(`Node ${node} is not a gateway: it has no label ${LABEL_GATEWAY}`)
  await api.cache('Lease').whenSynced(signal)
  const { lane: stated, ...rest } = label
  const lane = stated === 'any' ? (laneOfHolder(api.cache('Lease').list(), node) ?? nextLane(site)) : stated
  if (lane === undefined) throw new UserError(`Node ${node} is on standby: other nodes serve all lanes`)
  return { ...rest, lane }
}

/** The lane that this node of a site would take if it started now. Undefined if enough other nodes serve lanes. */
function nextLane({ api, config, kube }: SiteRun): number | undefined {
  if (kube !== undefined) return undefined
  const leases = api.cache('Lease').list()
  const stated = new Set(config.gateways.flatMap(({ lane }) => lane ?? []))
  const held = config.gateways.flatMap(({ node, lane }) =>
    lane === undefined ? (laneOfHolder(leases, node) ?? []) : [],
  )
  if (held.length >= config.activeGateways) return undefined
  const lanes = Array.from({ length: MAX_LANE + 1 }, (_, lane) => lane)
  return lanes.find((lane) => !stated.has(lane) && !held.includes(lane))
}
