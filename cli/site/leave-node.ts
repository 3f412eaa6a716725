/** A node that was away while its site left: it cleans up by itself, nobody else can do it. */
import { readMemberIdentity } from '../../protocol/membership/membership.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type CommandContext, PlainLogger, withSite } from '../context/context.ts'

export interface LeaveNodeInit {
  /** The site file. */
  readonly site: string
  /** Also while the site is a member. */
  readonly force: boolean
}

/** Throws UserError for a user who may not, and for a site that is a member still; else what the kernel refused. */
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
        hint: `leave with: sealane leave --site ${file}; to take the lanes down on this node all the same, add --force`,
      })
    }
    const { cleanNode } = await import('../../compose/site/clean.ts')
    await cleanNode(site, { node, logger: new PlainLogger(output), signal })
    output.answer('this node is free of Sealane\n')
  })
}

/** A damaged identity is one all the same. */
function isMember(directory: string): Promise<boolean> {
  return readMemberIdentity(directory).then(
    (identity) => identity !== undefined,
    () => true,
  )
}
