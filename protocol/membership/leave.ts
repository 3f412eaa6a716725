/**
 * Leaving: the holder of the identity tells the broker. That is `sealane leave` on a plain site, the agent in a
 * cluster.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { AddressBook, RefusedError } from '../protocol.ts'
import type { MemberIdentity } from './member-files.ts'
import { connectBroker } from '../transport/transport.ts'

/** For one call; nothing else waits for it. */
export const LEAVE_TIMEOUT_MS = 10_000

/**
 * `left`: the broker has withdrawn everything of this cluster. `noMember`: it was none any more, by an earlier leave or
 * by eviction; `said` is the broker's word. Throws BrokerUnreachableError, RefusedError, a TimeoutError after
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
