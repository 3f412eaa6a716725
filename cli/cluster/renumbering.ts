/**
 * A join may change the addresses at which existing members are reached. This names those members first, and asks the
 * user to confirm.
 */
import { type ClusterId, renumberedText } from '../../model/model.ts'
import { type ClusterFacts, RefusedError, type JoinLook } from '../../protocol/protocol.ts'
import { awaitsApproval } from '../../protocol/membership/membership.ts'
import type { JoinToken } from '../../protocol/identity/identity.ts'
import { UserError } from '../../runtime/runtime.ts'

export interface LookAsk {
  readonly token: JoinToken
  readonly cluster: ClusterId
  readonly facts: ClusterFacts
}

/** Asks the broker of the token for the effects of a join. */
export type LookAtJoin = (ask: LookAsk, signal: AbortSignal) => Promise<JoinLook>

export interface RenumberingInit extends LookAsk {
  readonly look: LookAtJoin
  /** Asks the user. Undefined if the user is not asked. */
  readonly confirm?: ((question: string) => Promise<boolean>) | undefined
  readonly say: (text: string) => void
  readonly signal: AbortSignal
}

const AFTERWARDS =
  'afterwards, "sealane cluster list" on the broker and "sealane show clusters" here show which members have global ones'

/**
 * Names the members that would get global addresses by this join, and asks the user to confirm. A broker of an older
 * release cannot tell, so the join continues with a note. If an operator of the broker has to accept this join, the
 * operator is shown the effects and decides. Throws UserError if the user declines. `unknown` if the broker is
 * unreachable from here.
 */
export async function agreeOnRenumbering({
  look,
  confirm,
  say,
  signal,
  ...ask
}: RenumberingInit): Promise<'agreed' | 'unknown'> {
  let found: JoinLook
  try {
    found = await look(ask, signal)
  } catch (error) {
    signal.throwIfAborted()
    if (awaitsApproval(error)) return 'agreed'
    if (!isOfOlderRelease(error)) return 'unknown'
    say(
      `note: the broker is of an older release and cannot tell whether this join changes addresses of other members; ${AFTERWARDS}\n`,
    )
    return 'agreed'
  }
  if (found.renumbered.length === 0) return 'agreed'
  say(`${renumberedText(found.renumbered, 'get')}\n`)
  if (confirm !== undefined && !(await confirm('Join anyway'))) throw new UserError('nothing was changed')
  return 'agreed'
}

/** A broker of an older release treats the question as a join request, which it refuses because it has no csr. */
function isOfOlderRelease(error: unknown): boolean {
  return error instanceof RefusedError && error.field === 'csr'
}
