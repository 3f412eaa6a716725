/**
 * Makes a site leave in the order with the least disruption: first the broker is told, so that the other members stop
 * calling, then every node removes Sealane from its kernel, and only then the identity is deleted.
 */
import { MembershipChanges, type ObjectCache } from '../../kubeapi/kubeapi.ts'
import { type Gateway, MEMBERSHIP_NAME, type RouteAgent } from '../../model/model.ts'
import {
  IdentityFileError,
  LEAVE_TIMEOUT_MS,
  type MemberIdentity,
  askToLeave,
  readMemberIdentity,
  removeMemberIdentity,
} from '../../protocol/membership/membership.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError, formatDuration } from '../../runtime/runtime.ts'
import { createLogger } from '../../runtime/logging/logging.ts'
import { type CommandContext, type OpenSite, confirm } from '../context/context.ts'
import { planRemoval } from '../cluster/cluster.ts'
import { hasPreferLocal, removePreferLocal } from './prefer-local.ts'

export interface LeaveInit {
  readonly timeoutMs: number
  readonly force: boolean
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/**
 * Returns the id under which this site was a member. Throws UserError if the site is not a member, if the broker cannot
 * be told, or if a node does not clean up in time. Completed steps are not undone, and a second leave continues from
 * there.
 */
export async function leaveClusterset(site: OpenSite, init: LeaveInit): Promise<string> {
  const { config, api } = site
  const identity = await readIdentity(config.identity, init)
  const memberships = api.cache('Membership')
  await memberships.whenSynced(init.signal)
  const membership = memberships.get(MEMBERSHIP_NAME)
  if (identity === undefined && membership === undefined && !init.force) {
    throw new UserError('this site has not joined a clusterset')
  }
  if (identity !== undefined) await reportToBroker(identity, init)
  if (membership !== undefined) {
    const changes = new MembershipChanges(api)
    const sayLeaving = (): Promise<unknown> =>
      changes.apply(({ spec, ...rest }) => ({ ...rest, spec: { ...spec, phase: 'leaving' } }), init.signal)
    await sayLeaving()
    // Files have no compare-and-swap: an agent that read the Membership before may write it after. A disk that takes nothing
    // shows in nodes that do not clean up.
    const look = (): void => {
      if (memberships.get(MEMBERSHIP_NAME)?.spec.phase === 'joined') void sayLeaving().catch(() => undefined)
    }
    const stop = memberships.onChange(look)
    try {
      look()
      await nodesDone(site, init)
    } finally {
      stop()
    }
  }
  await removeObjects(site, init.signal)
  await removePreferLocal(site, init)
  await removeMemberIdentity(config.identity, await markOf(config))
  return identity?.cluster ?? membership?.spec.clusterId ?? config.name
}

/**
 * Lists what is removed and asks for confirmation, as on a cluster. Throws UserError if the user declines, and with
 * exit code 2 if there is neither a terminal nor --yes. A site that has nothing to remove is not asked about.
 */
export async function confirmSiteLeave(
  open: OpenSite,
  { site, force, yes }: { readonly site: string; readonly force: boolean; readonly yes: boolean },
  context: CommandContext,
): Promise<void> {
  if (yes) return
  const { config, api } = open
  const kinds = ['Membership', 'Cluster', 'ServiceExport', 'Gateway', 'RouteAgent'] as const
  await Promise.all(kinds.map((kind) => api.cache(kind).whenSynced(context.signal)))
  const own = api.cache('Membership').get(MEMBERSHIP_NAME)?.spec
  // Without its Membership, a site is still a member by its identity.
  const identity = await readMemberIdentity(config.identity).catch(() => undefined)
  const id = own?.clusterId ?? identity?.cluster
  const named = (kind: (typeof kinds)[number]): string[] =>
    api
      .cache(kind)
      .list()
      .map(({ metadata: { name, namespace } }) => (namespace === undefined ? name : `${namespace}/${name}`))
  const nodes = [...new Set([...named('Gateway'), ...named('RouteAgent')])]
  const { lines, command } = planRemoval(
    {
      title: `site ${config.name}`,
      flags: `--site ${site}`,
      site: true,
      member:
        id === undefined
          ? undefined
          : {
              id,
              clusterset: own?.clusterset ?? identity?.clusterset ?? '',
              leaving: own?.phase === 'leaving',
            },
      parts: [],
      others: named('Cluster').filter((other) => other !== id),
      exports: named('ServiceExport'),
      imports: 0,
      nodes,
      hasPolicy: await hasPreferLocal(open, context.signal),
      broker: undefined,
    },
    { verb: 'leave', crds: false, deleteData: false, evictMembers: false, force },
  )
  if (lines.length === 0) return
  context.output.remark(`${lines.join('\n')}\n`)
  await confirm({ what: 'Remove it', yes, command }, context)
}

async function readIdentity(directory: string, { force, say }: LeaveInit): Promise<MemberIdentity | undefined> {
  try {
    return await readMemberIdentity(directory)
  } catch (error) {
    if (!(error instanceof IdentityFileError)) throw error
    if (!force) throw notReported(error.message, error)
    say(`the leave cannot be reported to the broker (${error.message}); continuing because of --force`)
    return undefined
  }
}

async function reportToBroker(identity: MemberIdentity, { force, signal, say }: LeaveInit): Promise<void> {
  try {
    const done = await askToLeave(identity, { clock: new SystemClock(), logger: createLogger('cli', 'warn') }, signal)
    if (done.t === 'left') say('the broker has withdrawn all records of this cluster')
    else say(`the broker answered: ${done.said}`)
  } catch (error) {
    signal.throwIfAborted()
    const message = isTimeout(error) ? `no answer within ${formatDuration(LEAVE_TIMEOUT_MS)}` : (error as Error).message
    if (!force) throw notReported(message, error)
    say(`the leave could not be reported to the broker (${message}); continuing because of --force`)
    const id = identity.cluster
    say(`${id} stays a member until it is evicted; on the broker, run: sealane cluster evict ${id}`)
  }
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.name === 'TimeoutError'
}

function notReported(message: string, cause: unknown): UserError {
  return new UserError(`the leave could not be reported to the broker: ${message}`, {
    hint: 'try again, or use --force and evict this cluster on the broker (sealane cluster evict)',
    cause,
  })
}

/** A node is done when its processes have removed their Gateway and RouteAgent objects. */
async function nodesDone({ config, api }: OpenSite, { timeoutMs, force, signal, say }: LeaveInit): Promise<void> {
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
  const caches = [api.cache('Gateway'), api.cache('RouteAgent')] as const
  await Promise.all(caches.map((cache) => cache.whenSynced(signal)))
  const left = (): (Gateway | RouteAgent)[] =>
    caches.flatMap((cache): readonly (Gateway | RouteAgent)[] => cache.list())
  await untilNone(caches, left, deadline)
  signal.throwIfAborted()
  if (left().length === 0) {
    say('every node has removed Sealane from its kernel')
    return
  }
  const parts = left().map(({ kind, metadata }) => `${kind.toLowerCase()} on ${metadata.name}`)
  const problem = `not cleaned up after ${formatDuration(timeoutMs)}: ${parts.join(', ')}`
  if (!force) {
    throw new UserError(problem, {
      hint: 'run "sealane up" there once: it cleans up and exits; then leave again, or skip the node with --force',
    })
  }
  say(`${problem}; continuing because of --force`)
  const nodes = [...new Set(left().map(({ metadata }) => metadata.name))]
  for (const node of nodes) say(`when ${node} is back, run on it: sealane leave --node ${node} --site ${config.file}`)
}

/** Resolves when nothing is left, or when the signal aborts. */
function untilNone(
  caches: readonly Pick<ObjectCache<unknown>, 'onChange'>[],
  left: () => readonly unknown[],
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (left().length > 0 && !signal.aborted) return
      for (const stop of stops) stop()
      signal.removeEventListener('abort', look)
      resolve()
    }
    const stops = caches.map((cache) => cache.onChange(look))
    signal.addEventListener('abort', look, { once: true })
    look()
  })
}

/** Where several hubs have the identity, each of them hears that it was removed. */
async function markOf({ hub, state }: OpenSite['config']): Promise<((name: string) => Promise<void>) | undefined> {
  if (hub.listen.length <= 1) return undefined
  // Loaded on demand: most sites need none of it.
  const { SharedMarks } = await import('../../compose/hub/shared-marks.ts')
  const marks = new SharedMarks(state)
  return (name) => marks.add(`identity/${name}`)
}

const OURS = [
  'ServiceImport',
  'EndpointSlice',
  'Endpoint',
  'Gateway',
  'RouteAgent',
  'Lease',
  'ClusterProperty',
  'Cluster',
  'Membership',
] as const

async function removeObjects({ api }: OpenSite, signal: AbortSignal): Promise<void> {
  for (const kind of OURS) {
    const cache = api.cache(kind)
    await cache.whenSynced(signal)
    for (const { metadata } of cache.list()) {
      await api.remove(kind, metadata.name, metadata.namespace, signal).catch((error: unknown) => {
        // The same list contains EndpointSlices of the user, which Sealane must not remove.
        if ((error as { code?: string }).code !== 'Forbidden') throw error
      })
    }
  }
}
