/** Cleans up a node that was down while its site left. Only the node itself can do that. */
import { readMemberIdentity } from '../../protocol/membership/membership.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type CommandContext, PlainLogger, withSite } from '../context/context.ts'

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
  await withSite(file, { signal, output }, async (site) => {
    if (!force && (await isMember(site.config.identity))) {
      throw new UserError('this site is a member: its nodes clean up when it leaves', {
        hint: `leave with: sealane leave --site ${file}; to take the lanes down on this node anyway, add --force`,
      })
    }
    const { cleanNode } = await import('../../compose/site/clean.ts')
    await cleanNode(site, { node, logger: new PlainLogger(output), signal })
    output.answer('Sealane was removed from this node\n')
  })
}

/** A damaged identity counts as a membership. */
function isMember(directory: string): Promise<boolean> {
  return readMemberIdentity(directory).then(
    (identity) => identity !== undefined,
    () => true,
  )
}
