/** A join may change the addresses of members that are there: they are named before, and the user is asked. */
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

/** Asks the broker of the token what a join would bring. */
export type LookAtJoin = (ask: LookAsk, signal: AbortSignal) => Promise<JoinLook>

export interface RenumberingInit extends LookAsk {
  readonly look: LookAtJoin
  /** Undefined: nobody is asked. */
  readonly confirm?: ((question: string) => Promise<boolean>) | undefined
  readonly say: (text: string) => void
  readonly signal: AbortSignal
}

const AFTERWARDS =
  'afterwards, "sealane cluster list" on the broker and "sealane show clusters" here say who has global ones'

/**
 * Names the members that would get global addresses by this join, and asks. A broker of an older release stops nobody.
 * Where an operator of the broker has to accept this join, that is who is told and agrees. Throws UserError where the
 * answer is no. `unknown`: the broker cannot be asked from here.
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
      `note: whether this join changes addresses of other members is not known before (the broker is of an older release); ${AFTERWARDS}\n`,
    )
    return 'agreed'
  }
  if (found.renumbered.length === 0) return 'agreed'
  say(`${renumberedText(found.renumbered, 'get')}\n`)
  if (confirm !== undefined && !(await confirm('Join all the same'))) throw new UserError('nothing was changed')
  return 'agreed'
}

/** It meets a request without a csr, and refuses that. */
function isOfOlderRelease(error: unknown): boolean {
  return error instanceof RefusedError && error.field === 'csr'
}
