/**
 * Leaving, in the order that hurts least: the broker first (the others stop calling), then every node takes Sealane
 * out of its kernel, and only then the identity goes.
 */
import type { Gateway, RouteAgent } from '../model/objects.ts'
import { MEMBERSHIP_NAME } from '../model/objects.ts'
import { type MemberIdentity, readMemberIdentity, removeMemberIdentity } from '../protocol/identity/member-files.ts'
import { connectBroker } from '../protocol/transport/grpc-client.ts'
import { SystemClock } from '../reconcile/clock.ts'
import { createLogger } from '../runtime/pino-logger.ts'
import { UserError } from '../runtime/user-error.ts'
import type { OpenSite } from './site.ts'

export interface LeaveInit {
  readonly timeoutMs: number
  readonly force: boolean
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/** Throws UserError when this site is no member, the broker cannot be told, or a node does not clean up in time. */
export async function leaveClusterset(site: OpenSite, init: LeaveInit): Promise<void> {
  const { config, cluster } = site
  const directory = config.identity
  const identity = await readMemberIdentity(directory)
  const memberships = cluster.cache('Membership')
  await memberships.whenSynced(init.signal)
  const membership = memberships.get(MEMBERSHIP_NAME)
  if (identity === undefined && membership === undefined) throw new UserError('this site has not joined a clusterset')
  if (identity !== undefined) await tellBroker(identity, init)
  if (membership !== undefined) {
    await cluster.apply({ ...membership, spec: { ...membership.spec, phase: 'leaving' } }, init.signal)
    await nodesDone(site, init)
    await removeObjects(site, init.signal)
  }
  await removeMemberIdentity(directory)
}

async function tellBroker(identity: MemberIdentity, { force, signal, say }: LeaveInit): Promise<void> {
  const client = connectBroker({
    addresses: identity.brokerAddresses,
    clusterset: identity.clusterset,
    ca: identity.caBundle,
    identity: { certificate: identity.certificate, key: identity.key },
    clock: new SystemClock(),
    logger: createLogger('cli', 'warn'),
  })
  try {
    await client.leave(AbortSignal.any([signal, AbortSignal.timeout(10_000)]))
    say('the broker has withdrawn everything of this cluster')
  } catch (error) {
    const message = (error as Error).message
    if (!force) {
      throw new UserError(`the broker could not be told: ${message}`, {
        hint: 'try again, or use --force and evict this cluster on the broker',
        cause: error,
      })
    }
    say(`the broker could not be told (${message}); going on because of --force`)
  } finally {
    client.close()
  }
}

/** A node is done when its processes have removed their Gateway and RouteAgent objects. */
async function nodesDone({ cluster }: OpenSite, { timeoutMs, signal, say }: LeaveInit): Promise<void> {
  const gateways = cluster.cache('Gateway')
  const routeAgents = cluster.cache('RouteAgent')
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
  await Promise.all([gateways.whenSynced(signal), routeAgents.whenSynced(signal)])
  const left = (): (Gateway | RouteAgent)[] => [...gateways.list(), ...routeAgents.list()]
  await new Promise<void>((resolve, reject) => {
    const look = (): void => {
      if (left().length === 0) resolve()
    }
    const ends = [gateways.onChange(look), routeAgents.onChange(look)]
    const end = (): void => {
      for (const stop of ends) stop()
      const parts = left().map(({ kind, metadata }) => `${kind.toLowerCase()} on ${metadata.name}`)
      reject(
        new UserError(`not cleaned up after ${timeoutMs} ms: ${parts.join(', ')}`, {
          hint: 'start "sealane up" there once: it cleans up and ends; then leave again',
        }),
      )
    }
    deadline.addEventListener('abort', end, { once: true })
    look()
  })
  say('every node has taken Sealane out of its kernel')
}

async function removeObjects({ cluster }: OpenSite, signal: AbortSignal): Promise<void> {
  for (const kind of ['ServiceImport', 'EndpointSlice', 'Endpoint', 'Cluster', 'Membership'] as const) {
    const cache = cluster.cache(kind)
    await cache.whenSynced(signal)
    for (const { metadata } of cache.list()) {
      await cluster.remove(kind, metadata.name, metadata.namespace, signal).catch((error: unknown) => {
        // The user's own EndpointSlices are in the same list; they are not ours to remove.
        if ((error as { code?: string }).code !== 'Forbidden') throw error
      })
    }
  }
}
