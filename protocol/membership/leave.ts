/**
 * Leaves a clusterset by a call to the broker, for `sealane leave` on a site and for the agent in a Kubernetes cluster.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { AddressBook, RefusedError } from '../protocol.ts'
import type { MemberIdentity } from './member-files.ts'
import { connectBroker } from '../transport/transport.ts'

/** Timeout of the call. It is not critical, because nothing else waits for the call. */
export const LEAVE_TIMEOUT_MS = 10_000

/**
 * Result `left`: the broker has withdrawn all records of this cluster. Result `noMember`: the cluster had already left
 * or was evicted; `said` is the broker's message. Throws BrokerUnreachableError, RefusedError, a TimeoutError after
 * LEAVE_TIMEOUT_MS, or the signal's reason.
 */
export async function askToLeave(
  identity: MemberIdentity,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  signal: AbortSignal,
): Promise<{ readonly t: 'left' } | { readonly t: 'noMember'; readonly said: string }> {
  const client = connectBroker({
    addresses: identity.brokerAddresses,
    book: new AddressBook({ own: identity.brokerAddresses, proven: identity.learnedAddresses ?? [], clock }),
    clusterset: identity.clusterset,
    ca: identity.caBundle,
    identity: { certificate: identity.certificate, key: identity.key },
    clock,
    logger,
  })
  try {
    await client.leave(AbortSignal.any([signal, AbortSignal.timeout(LEAVE_TIMEOUT_MS)]))
    return { t: 'left' }
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof RefusedError && error.code === 'PermissionDenied')
      return { t: 'noMember', said: error.message }
    throw error
  } finally {
    client.close()
  }
}
