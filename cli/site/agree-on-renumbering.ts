/** A join may change the addresses of members that are there: they are named before, and the user is asked. */
import type { ClusterId } from '../../model/ids.ts'
import { type ClusterFacts, RefusedError, type JoinLook, type Renumbered } from '../../protocol/broker-api.ts'
import type { JoinToken } from '../../protocol/identity/token.ts'
import { brokenConnectionsText } from '../../model/open-connections.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { UserError } from '../../runtime/user-error.ts'

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
 * Names the members that would get global addresses by this join, and asks. A broker that cannot be asked from here, or
 * of an older release, stops nobody. Throws UserError where the answer is no.
 */
export async function agreeOnRenumbering({ look, confirm, say, signal, ...ask }: RenumberingInit): Promise<void> {
  let found: JoinLook
  try {
    found = await look(ask, signal)
  } catch (error) {
    signal.throwIfAborted()
    say(
      `note: whether this join changes addresses of other members is not known before (${whyNot(error)}); ${AFTERWARDS}\n`,
    )
    return
  }
  if (found.renumbered.length === 0) return
  say(`${renumberedText(found.renumbered, 'get')}\n`)
  if (confirm !== undefined && !(await confirm('Join all the same'))) throw new UserError('nothing was changed')
}

const MAX_NAMED = 10

/** `milano (244.0.0.0/16) and tokyo (244.1.0.0/16) get global addresses by this join: …` */
export function renumberedText(members: readonly Renumbered[], verb: 'get' | 'got'): string {
  const listed = members.slice(0, MAX_NAMED)
  const named = listed.map(({ cluster, globalCIDRs }) => `${cluster} (${globalCIDRs.join(', ')})`)
  const more = members.length > MAX_NAMED ? ` and ${members.length - MAX_NAMED} more` : ''
  return (
    `other members ${verb} global addresses by this join, since this cluster's pods or services have addresses of theirs: ` +
    `${named.join(', ')}${more}. ${brokenConnectionsText(listed, verb === 'get' ? 'break' : 'broke')}; names lead to the new ` +
    `addresses within seconds`
  )
}

/** An older broker meets a request without a csr, and refuses that. */
function whyNot(error: unknown): string {
  if (error instanceof RefusedError && error.field === 'csr') return 'the broker is of an older release'
  return messageOf(error)
}
