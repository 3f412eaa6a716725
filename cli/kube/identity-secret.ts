/** The Secret with the identity of a cluster, as a join finds it: what an earlier one left, and a token for the agent. */
import { IDENTITY_SECRET, IDENTITY_SECRET_TYPE, partLabels } from '../../install/names.ts'
import type { MemberIdentity } from '../../protocol/identity/member-files.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import { endOfIdentity } from '../../protocol/join.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { UserError } from '../../runtime/user-error.ts'
import type { EarlierInstall } from '../discovery/earlier-install.ts'
import { type SecretAccess, joinProblem, secretIdentity } from '../secret-identity.ts'
import type { ClusterAdmin } from './admin.ts'
import { leaveToken } from './apply-join.ts'
import { secretAccess } from './secret-access.ts'

export function identitySecret(admin: ClusterAdmin, namespace: string, signal: AbortSignal): SecretAccess {
  const labels = partLabels('agent')
  return secretAccess(admin, { namespace, name: IDENTITY_SECRET, type: IDENTITY_SECRET_TYPE, labels }, signal)
}

export interface KnownMembershipInit {
  /** Of the cluster, for messages: `context "c1" of kubeconfig`. */
  readonly title: string
  /** Undefined: whatever is there stands. */
  readonly token: string | undefined
  /** `--context c1`, for the commands that are advised. */
  readonly flags: string
  readonly clock: Clock
  readonly say: (text: string) => void
}

/** The identity of an earlier join, if there is one that still counts. Throws UserError where this join cannot go on. */
export async function knownMembership(
  secret: SecretAccess,
  earlier: Pick<EarlierInstall, 'state'>,
  init: KnownMembershipInit,
): Promise<MemberIdentity | undefined> {
  const { title, token, flags, clock, say } = init
  const known = await secretIdentity(secret).read()
  // Every part takes itself out: what is installed now would go with it.
  if (token !== undefined && earlier.state === 'leaving') throw isLeaving(known, init)
  if (known === undefined || token === undefined) return known
  const { clusterset } = parseJoinToken(token, clock.now())
  if (known.clusterset !== clusterset) {
    throw new UserError(`${title} is already joined as ${known.cluster} in clusterset ${known.clusterset}`, {
      hint: `leave first: sealane leave ${flags}`,
    })
  }
  const endsAtMs = endOfIdentity(known)
  if (endsAtMs <= clock.now()) {
    say(`joined before as ${known.cluster}; that certificate ended at ${new Date(endsAtMs).toISOString()}\n`)
    return undefined
  }
  const refused = joinProblem(await secret.read(), '')?.text
  if (refused !== undefined) {
    throw new UserError(`${title} has joined as ${known.cluster}, and the broker refuses it: ${refused}`, {
      hint: `leave first: sealane leave ${flags}`,
    })
  }
  return known
}

/** An identity that is gone means that the broker was told. */
function isLeaving(known: MemberIdentity | undefined, { title, flags }: KnownMembershipInit): UserError {
  if (known === undefined) {
    return new UserError(`${title} is leaving its clusterset: its parts take themselves out`, {
      hint: `finish that first: sealane leave ${flags}`,
    })
  }
  return new UserError(`${title} is leaving clusterset ${known.clusterset}: the broker is not told yet`, {
    hint: `finish that first: sealane leave ${flags}; with --force where the broker is gone for good`,
  })
}

/** For the agent, where there is no identity that counts. */
export async function bringToken(
  secret: SecretAccess,
  { known, say }: { readonly known: MemberIdentity | undefined; readonly say: (text: string) => void },
  token: string,
): Promise<void> {
  if (known !== undefined) say(`already joined as ${known.cluster}: the token is not used\n`)
  else await leaveToken(secret, token)
}
