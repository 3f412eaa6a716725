/**
 * Follows the object Topology in the cluster of the broker, so that GitOps sets which clusters link. The broker checks
 * it as it checks `sealane topology set`. What is invalid changes nothing, and a deletion leaves the topology as it is:
 * a mistake links nothing that was not linked before.
 */
import type { TopologySink } from '../../broker/admin/admin.ts'
import { DEFAULT_VALUES } from '../../install/values/values.ts'
import { type ClusterApi, ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { openKubeApi } from '../../kubeapi/kube/kube.ts'
import { TOPOLOGY_NAME, type TopologyObject } from '../../model/model.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { type Clock, DEFAULT_LOOP, ReconcileLoop } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { reportedLoop } from '../../runtime/runtime.ts'
import { type TopologyOutcome, planTopologyStatus } from './plan-topology-status.ts'

export interface FollowTopologyDeps {
  readonly api: Pick<ClusterApi, 'cache' | 'read' | 'applyStatus'>
  readonly sink: TopologySink
  readonly clock: Clock
  readonly logger: Logger
}

const TITLE = `Topology ${TOPOLOGY_NAME}`

/** Runs until the signal. Never rejects. Rounds at an interval repair what a replica of an earlier release set. */
export async function followTopology(deps: FollowTopologyDeps, signal: AbortSignal): Promise<void> {
  const { api, clock, logger } = deps
  const objects = api.cache('Topology')
  const loop = new ReconcileLoop(
    reportedLoop({ clock, logger, loop: 'topology', count: () => undefined }),
    DEFAULT_LOOP,
    (until) => round(deps, until),
  )
  const stop = objects.onChange(() => loop.poke())
  try {
    await loop.run(signal)
  } finally {
    stop()
  }
}

async function round(deps: FollowTopologyDeps, signal: AbortSignal): Promise<void> {
  const { api, sink, logger } = deps
  const objects = api.cache('Topology')
  const isUnserved = objects.isUnserved === true
  if ((!objects.synced && !isUnserved) || !sink.isWriter()) return
  // The server is asked, since the cache may be older than what another replica has set.
  const object = await api.read('Topology', TOPOLOGY_NAME, undefined, signal)
  if (object === undefined) {
    // A proxy may answer "not found" as well. A deletion is also seen by the cache, and a missing kind has no objects.
    if (!isUnserved && objects.get(TOPOLOGY_NAME) !== undefined) return
    const released = await sink.release()
    if (released !== undefined)
      logger.warn('the object was deleted; the topology stays, and commands set it again', {
        reason: 'TopologyObjectDeleted',
        what: released,
      })
  } else await report(deps, object, await outcomeOf(sink, object), signal)
  for (const other of objects.list())
    if (other.metadata.name !== TOPOLOGY_NAME) await report(deps, other, { t: 'ignored' }, signal)
}

async function outcomeOf(sink: TopologySink, { spec }: TopologyObject): Promise<TopologyOutcome> {
  try {
    const { number } = await sink.set(spec, TITLE)
    return { t: 'applied', number }
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error
    const { reason, message } = error
    if (reason === 'InvalidValue') return { t: 'refused', reason: 'TopologyInvalid', message }
    if (reason === 'TopologyNotSupported' || reason === 'TopologyNotFollowed') return { t: 'refused', reason, message }
    throw error
  }
}

async function report(
  { api, clock }: FollowTopologyDeps,
  object: TopologyObject,
  outcome: TopologyOutcome,
  signal: AbortSignal,
): Promise<void> {
  const changed = planTopologyStatus(object, outcome, clock.now())
  if (changed === undefined) return
  try {
    await api.applyStatus(changed, signal)
  } catch (error) {
    // It was deleted in between, which the next round finds.
    if (!(error instanceof ClusterApiError) || error.code !== 'NotFound') throw error
  }
}

export interface TopologyFollower {
  readonly follow: (sink: TopologySink, signal: AbortSignal) => Promise<void>
  close(): Promise<void>
}

/**
 * Uses the kubeconfig of the environment, or the service account of the pod. Throws UserError if there is neither. Does
 * not contact the server yet, and the broker serves while that is away.
 */
export async function openTopologyFollower(deps: {
  readonly clock: Clock
  readonly logger: Logger
}): Promise<TopologyFollower> {
  const { clock } = deps
  const logger = deps.logger.child({ component: 'broker' })
  const api = await openKubeApi({ clock, logger }, { namespace: DEFAULT_VALUES.broker.namespace })
  return {
    follow: (sink, signal) => followTopology({ api, sink, clock, logger }, signal),
    close: () => api.close(),
  }
}
