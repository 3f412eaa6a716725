/** Cleans up a node that was down while its site left. Only the node itself can do that. */
import { MEMBERSHIP_NAME } from '../../model/model.ts'
import { readMemberIdentity } from '../../protocol/membership/membership.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type CommandContext, type OpenSite, PlainLogger, withSite } from '../context/context.ts'

export interface LeaveNodeInit {
  /** The path of the site file. */
  readonly site: string
  /** Cleans up even if the site is a member. */
  readonly force: boolean
}

/** Throws UserError if the user is not root or if the site is still a member, and the errors of the kernel. */
export async function leaveNode(
  node: string,
  { site: file, force }: LeaveNodeInit,
  { signal, output }: CommandContext,
): Promise<void> {
  if (process.getuid?.() !== 0) {
    throw new UserError('leave --node: must run as root: it changes routes, nftables and WireGuard')
  }
  await withSite(file, { signal, output, anyNode: true }, async (site) => {
    if (!force && (await isMember(site, signal))) {
      throw new UserError('this site is a member: its nodes clean up when it leaves', {
        hint: `leave with: sealane leave --site ${file}; to take the lanes down on this node anyway, add --force`,
      })
    }
    const { cleanNode } = await import('../../compose/site/clean.ts')
    await cleanNode(site, { node, logger: new PlainLogger(output), signal })
    output.answer('Sealane was removed from this node\n')
  })
}

/** A damaged identity counts as a membership, as does a hub that does not answer. */
function isMember({ api, config, remote }: OpenSite, signal: AbortSignal): Promise<boolean> {
  const found =
    remote === undefined
      ? readMemberIdentity(config.identity)
      : api.read('Membership', MEMBERSHIP_NAME, undefined, signal)
  return found.then(
    (membership) => membership !== undefined,
    () => true,
  )
}
