/**
 * Runs the agent, the only part that connects to the broker. It publishes this cluster's exports and mirrors those of
 * others.
 */
import { type ClusterApi, HeardGateways, MembershipChanges, watchLeaving, whenMembership } from '../kubeapi/kubeapi.ts'
import { AccessVersions } from '../model/access/access.ts'
import { TrafficVersions } from '../model/services/services.ts'
import { MEMBERSHIP_NAME, RESERVED_ID_PROBLEM, isReservedId } from '../model/model.ts'
import { type BackoffInit, untilDone } from '../reconcile/reconcile.ts'
import type { ComponentDeps } from '../runtime/runtime.ts'
import {
  AboutLoop,
  type AskClusterDns,
  type DnsMaps,
  ClusterDnsLoop,
  ContactLoop,
  GatewayLoop,
  PodAddressLoop,
  SilentAgents,
  RequiredRangesLoop,
  OrphanLoop,
  type Surroundings,
  reportOwnRenumbering,
  surroundingsReader,
} from './cluster/cluster.ts'
import { BackendCheckLoop, type CheckBackend } from './backends/backends.ts'
import { type GatewayMarker, ReplacementLoop } from './gateways/gateways.ts'
import { type BrokerLink, type LinkDeps, openBrokerLink } from './link/link.ts'
import {
  type ChangeMembership,
  type NoteRelays,
  RefusedMembership,
  RelayTicketLoop,
  StatedAccessLoop,
  hasLeft,
} from './membership/membership.ts'
import { type AgentConfig, type AgentMetrics, MirrorWriter, SharedFindings, agentMetrics } from './loop/loop.ts'
import { DerivedLoop, InterestLoop, MirrorLoop } from './mirror/mirror.ts'
import { AccessPolicyLoop, PublishLoop, ReportLoop, TrafficPolicyLoop } from './publish/publish.ts'
import { IdentityFileError } from '../protocol/membership/membership.ts'

export interface AgentDeps extends ComponentDeps {
  readonly api: ClusterApi
  /** Absent if this site has no cluster DNS. */
  readonly askClusterDns?: AskClusterDns
  /** The ConfigMaps of the cluster DNS that `sealane join` wired. Absent if this site has none. */
  readonly dnsMaps?: DnsMaps
  /** Absent if gateway nodes are not replaced: on a site without Kubernetes, and where the installation says so. */
  readonly gatewayMarker?: GatewayMarker
  /** Changes fields of the Membership. If absent, the agent writes the whole object. */
  readonly changeMembership?: ChangeMembership
  /** The writer of the Membership, if other parts of this process change it too. If absent, the agent has its own. */
  readonly membershipChanges?: MembershipChanges
  /** Changes the annotation about relays on port 443. If absent, the agent writes the whole object. */
  readonly noteRelays?: NoteRelays
  /** Checks a backend of this cluster's own services. Absent in a Kubernetes cluster, whose kubelets check pods. */
  readonly checkBackend?: CheckBackend
  /** Called with the reason why the broker does not accept this cluster as a member, or with undefined if it does. */
  readonly onRefused?: (reason: string | undefined) => void
  /**
   * Gives the networks of this machine and the addresses of the broker. By default, they are read from the kernel and
   * the identity.
   */
  readonly surroundings?: () => Promise<Surroundings>
  /** Identifies this process to the broker; see LinkDeps. */
  readonly processMark?: string
  /** Opens the connection to the broker. By default, it uses the identity from `sealane join` (protocol-link.ts). */
  readonly openLink?: (deps: LinkDeps, config: AgentConfig) => Promise<BrokerLink>
}

/** The pauses are short, since a user who runs `sealane leave` waits for the result. */
const LEAVE_BACKOFF: BackoffInit = { minMs: 100, maxMs: 5000 }

/** The cluster has joined under another id while the agent ran under the old one. */
export class MembershipChangedError extends Error {
  constructor(before: string, now: string) {
    super(
      `Membership ${MEMBERSHIP_NAME} says cluster id ${JSON.stringify(now)}, this agent runs as ${JSON.stringify(before)}: ` +
        'the id cannot change during a membership; restart the agent',
    )
    this.name = 'MembershipChangedError'
  }
}

/**
 * Runs until the signal, or until this cluster has left and everything mirrored is removed. Waits until the cluster has
 * joined. May be stopped at any point and run again, in any process, but only once at a time. Throws
 * MembershipChangedError, and the errors of openLink unless this cluster has left meanwhile. An unreachable broker is
 * not an error.
 */
export async function runAgent(deps: AgentDeps, config: AgentConfig, signal: AbortSignal): Promise<void> {
  const { api, status, clock } = deps
  const logger = deps.logger.child({ component: 'agent' })
  const metrics = agentMetrics(deps.metrics)
  let phase: string | undefined = 'waiting until this cluster joins a clusterset'
  status.readiness('agent', () => phase)

  const membership = await whenMembership(api, () => true, signal)
  if (membership === undefined) return
  const { clusterId: own, clusterset } = membership.spec
  if (isReservedId(own)) {
    const reason = `${own} ${RESERVED_ID_PROBLEM}`
    logger.warn(
      'the cluster id is reserved, so members that join later do not use this cluster; leave, and join under another id',
      {
        reason: 'ClusterIdReserved',
        why: reason,
      },
    )
  }
  const refused = new RefusedMembership({ api, logger, note: deps.onRefused })
  const onRefused = refused.onReason.bind(refused)
  const linkDeps = { ...deps, logger, agentMetrics: metrics, onRefused, followsInterest: true }
  const link = await openLinkUnlessLeft({ ...linkDeps, api, openLink: deps.openLink ?? openBrokerLink }, config)
  if (link === undefined) return

  const { identity } = config
  const surroundings = deps.surroundings ?? surroundingsReader(identity)
  const parts = { ...deps, logger, agentMetrics: metrics, link, surroundings }
  const loops = makeLoops(parts, { ...config, own, clusterset })
  const { about, contact, publish, mirror, report, silentAgents, others } = loops

  phase = undefined
  const notReady = (): string | undefined =>
    phase ?? about.problem() ?? publish.notReady() ?? mirror.notReady() ?? contact.notReady()
  status.readiness('agent', notReady)
  status.report('broker', () => link.state())
  status.report('notImported', () => report.notImported)
  status.report('undecidedExports', () => (publish.undecided === 0 ? undefined : publish.undecided))
  status.plan('agent', () => `broker: ${link.problem() ?? 'connected'}\n${mirror.print()}`)

  const leaving = watchLeaving(api, membership)
  const renamed = watchRenamed(api, own)
  const stopReporting = reportOwnRenumbering({ api, clock, logger, silentAgents }, own)
  const stop = AbortSignal.any([signal, leaving.signal, renamed.signal])
  logger.info('agent started', { cluster: own, clusterset })
  await Promise.all([
    about.run(stop),
    // A contradiction may last longer than the certificate. An expired certificate would need a new join.
    link.keepIdentity(stop),
    // Nothing is published or mirrored under an id that the cluster's own properties contradict.
    about
      .whenAccepted()
      .then(() => Promise.all([link, contact, publish, mirror, report, ...others].map((part) => part.run(stop)))),
  ])
  stopReporting()
  leaving.close()
  status.plan('agent', () => 'not running here')
  for (const field of ['broker', 'notImported', 'undecidedExports']) status.report(field, () => undefined)
  renamed.end()
  if (signal.aborted) return

  phase = 'leaving the clusterset'
  logger.info('leaving: removing the mirrored objects')
  const onFailure = (error: unknown): void => {
    logger.error('cannot remove the mirrored objects; retrying', { reason: 'RoundFailed', why: String(error) })
  }
  const leave = (): Promise<void> => takeOut(loops, link, signal)
  if (await untilDone(leave, { clock, backoff: LEAVE_BACKOFF, onFailure }, signal)) logger.info('left')
}

/**
 * Undefined if this cluster has left: `sealane leave` removed the identity after the acting agent had ended. The next
 * leader then has nothing to do.
 */
async function openLinkUnlessLeft(
  deps: LinkDeps & Required<Pick<AgentDeps, 'api' | 'openLink'>>,
  config: AgentConfig,
): Promise<BrokerLink | undefined> {
  try {
    return await deps.openLink(deps, config)
  } catch (error) {
    if (!(error instanceof IdentityFileError) || !hasLeft(deps.api)) throw error
    if ((await config.identity.read()) !== undefined) throw error
    deps.logger.info('this cluster has already left')
    return undefined
  }
}

interface AgentLoops {
  readonly about: AboutLoop
  readonly contact: ContactLoop
  readonly publish: PublishLoop
  readonly mirror: MirrorLoop
  readonly derived: DerivedLoop
  readonly report: ReportLoop
  readonly silentAgents: SilentAgents
  /** Loops that no other code here refers to, and loops that not every site has. */
  readonly others: readonly { run(signal: AbortSignal): Promise<void> }[]
}

/** The loops are subscribed to changes from here on, but none runs yet. */
function makeLoops(
  deps: AgentDeps & {
    readonly agentMetrics: AgentMetrics
    readonly link: BrokerLink
    readonly surroundings: () => Promise<Surroundings>
  },
  config: AgentConfig & { readonly own: string; readonly clusterset: string },
): AgentLoops {
  const { api, clock, logger, agentMetrics: metrics, link } = deps
  const { askClusterDns: ask, dnsMaps, gatewayMarker: marker, checkBackend: check, changeMembership: change } = deps
  const parts = { api, clock, logger, metrics, findings: new SharedFindings() }
  const writer = new MirrorWriter({ ...parts, own: config.own })
  const [versions, trafficVersions] = [new AccessVersions(), new TrafficVersions()]
  const about = new AboutLoop({ ...parts, writer }, config)
  // The agent sends no TCP probes to nodes: network policies may prevent them, and it only needs to know whether a
  // gateway reports.
  const gateways = new HeardGateways({ ...parts, heartbeatMs: config.heartbeatMs })
  const contact = new ContactLoop({ ...parts, writer, gateways, contact: link.contact }, config)
  const publish = new PublishLoop(
    { ...parts, writer, versions, publisher: link.publisher, stated: link.access, replica: link.replica },
    config,
  )
  const mirror = new MirrorLoop({ ...parts, writer, replica: link.replica }, config)
  const derived = new DerivedLoop({ ...parts, writer, gateways, versions, trafficVersions }, config)
  const orphans = config.removesOrphans ? [new OrphanLoop({ ...parts, writer }, config)] : []
  const clusterDns =
    ask === undefined ? [] : [new ClusterDnsLoop({ ...parts, writer, ask, dnsMaps, registry: deps.metrics }, config)]
  const backends =
    check === undefined ? [] : [new BackendCheckLoop({ ...parts, writer, check, registry: deps.metrics }, config)]
  const { publisher, replica } = link
  const requiredRanges = new RequiredRangesLoop({ ...parts, publisher, surroundings: deps.surroundings }, config)
  const silentAgents = new SilentAgents(parts, { lookMs: config.loop.resyncMs })
  const report = new ReportLoop({ ...parts, writer, publisher, replica, contact: link.contact, silentAgents }, config)
  const freshness = new GatewayLoop({ ...parts, gateways }, config)
  const interest = new InterestLoop({ ...parts, link }, config)
  const podAddresses = new PodAddressLoop({ ...parts, writer, silentAgents }, config)
  const replacement = marker === undefined ? [] : [new ReplacementLoop({ ...parts, marker }, config)]
  const policies = new AccessPolicyLoop({ ...parts, writer, versions }, config)
  const traffic = new TrafficPolicyLoop({ ...parts, writer, versions, trafficVersions, gateways }, config)
  const changes = deps.membershipChanges ?? new MembershipChanges(api)
  const statedAccess = new StatedAccessLoop({ ...parts, stated: link.access, change, changes }, config)
  const tickets = new RelayTicketLoop({ ...parts, stated: link.relays, note: deps.noteRelays, changes }, config)
  const others = [
    derived,
    policies,
    traffic,
    statedAccess,
    interest,
    requiredRanges,
    podAddresses,
    gateways,
    freshness,
    ...orphans,
    tickets,
    ...clusterDns,
    ...replacement,
    ...backends,
  ]
  return { about, contact, publish, mirror, derived, report, silentAgents, others }
}

/** Removes what this cluster wrote about the others and what is kept of them. Can be repeated after a failure. */
async function takeOut(loops: AgentLoops, link: BrokerLink, signal: AbortSignal): Promise<void> {
  await loops.about.removeAll(signal)
  await loops.publish.reportLeft(signal)
  // They follow from the imports, and a client that no longer finds the Service asks for no import.
  await loops.derived.removeAll(signal)
  await loops.mirror.removeAll(signal)
  await loops.contact.removeAll(signal)
  await link.forget()
}

interface RenamedWatch {
  /** Aborts when the cluster has joined under another id. */
  readonly signal: AbortSignal
  /** Throws MembershipChangedError if the cluster has joined under another id. */
  end(): void
}

function watchRenamed(api: ClusterApi, own: string): RenamedWatch {
  const cache = api.cache('Membership')
  const renamed = new AbortController()
  const look = (): void => {
    const spec = cache.get(MEMBERSHIP_NAME)?.spec
    if (spec?.phase !== 'joined' || spec.clusterId === own) return
    renamed.abort(new MembershipChangedError(own, spec.clusterId))
  }
  const stop = cache.onChange(look)
  look()
  return {
    signal: renamed.signal,
    end: () => {
      stop()
      renamed.signal.throwIfAborted()
    },
  }
}
