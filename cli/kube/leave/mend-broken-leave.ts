/** A leave that did not end, as the next join finds it: taken back while the broker has not been told, else finished. */
import { LEAVE_REQUESTED_ANNOTATION, LEAVE_UNREPORTED_ANNOTATION } from '../../../model/membership.ts'
import { secretIdentity } from '../../../protocol/identity/secret-identity.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { discover } from '../../discovery/discover.ts'
import { readSnapshot } from '../../discovery/snapshot/read-snapshot.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { identitySecret } from '../access/identity-secret.ts'
import { type Lookable, snapshotReader } from '../access/snapshot-reader.ts'
import { MEMBERSHIP, leaveCluster } from './leave-cluster.ts'
import type { LeaveClusterInit } from './leave-step.ts'

export interface MendLeaveInit extends LeaveClusterInit {
  readonly token: string | undefined
  readonly dryRun: boolean
  /** `--context c1`, for the commands that are advised. */
  readonly flags: string
  /** Where Sealane is installed. */
  readonly namespace: string
}

const NONE = { [LEAVE_REQUESTED_ANNOTATION]: null, [LEAVE_UNREPORTED_ANNOTATION]: null }

/** Throws UserError where this cluster has left, and no token is given to join with. */
export async function mendBrokenLeave(
  { admin, dynamic }: { readonly admin: ClusterAdmin; readonly dynamic: Lookable },
  init: MendLeaveInit,
): Promise<void> {
  const { signal, say, dryRun, namespace, token, flags } = init
  const membership = await admin.get(MEMBERSHIP, signal)
  if (membership === undefined) return
  const isLeaving = (membership['spec'] as { phase?: string } | undefined)?.phase === 'leaving'
  const isRequested = membership.metadata.annotations?.[LEAVE_REQUESTED_ANNOTATION] !== undefined
  if (!isLeaving && !isRequested) return
  const identity = secretIdentity(identitySecret(admin, namespace, signal))
  const isMember = (await identity.read()) !== undefined
  if (isMember || !isLeaving) {
    say('a leave that did not reach the broker is taken back\n')
    if (dryRun) return
    await admin.merge(MEMBERSHIP, { metadata: { annotations: NONE }, spec: { phase: 'joined' } }, signal)
    // The agent noted what stood in the way of leaving.
    await identity.problem(undefined)
    return
  }
  // Every part takes itself out: what is installed now would go with it.
  if (token === undefined) {
    throw new UserError(`${admin.title} has left its clusterset: its parts take themselves out`, {
      hint: `finish that: sealane leave ${flags}; or join anew with a token: sealane join ${flags} --token-file FILE`,
    })
  }
  say('a leave that did not end is finished first\n')
  if (!dryRun) await leaveCluster(admin, discover(await readSnapshot(snapshotReader(dynamic), signal)), init)
}
