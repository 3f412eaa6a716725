/** The command lines of leaveCluster() and of uninstalling. */
import { SystemClock } from '../../reconcile/clock.ts'
import type { CommandContext } from '../context.ts'
import type { KubeTarget } from '../target.ts'
import { withAdmin } from './installed-site.ts'
import { leaveCluster } from './leave-cluster.ts'
import type { LeaveClusterInit } from './leave-step.ts'
import { removeBroker, removeCrds } from './remove-installation.ts'

export type RunLeaveOptions = Pick<LeaveClusterInit, 'force' | 'timeoutMs'>

export async function runLeaveKube(
  target: KubeTarget,
  options: RunLeaveOptions,
  { signal, output }: CommandContext,
): Promise<void> {
  const init = { ...options, clock: new SystemClock(), signal, say: (text: string) => output.remark(text) }
  await withAdmin(target, init.clock, { signal, output }, async (open) => {
    const id = await leaveCluster(open, init)
    output.answer(id === undefined ? 'Sealane is removed\n' : `${id} has left the clusterset; Sealane is removed\n`)
  })
}

/** Everything of Sealane in one cluster, the broker as well. */
export async function runUninstall(
  target: KubeTarget,
  { crds, ...options }: RunLeaveOptions & { readonly crds: boolean },
  { signal, output }: CommandContext,
): Promise<void> {
  const init = { ...options, clock: new SystemClock(), signal, say: (text: string) => output.remark(text) }
  await withAdmin(target, init.clock, { signal, output }, async (open) => {
    // Nothing to leave is fine: what is left over goes all the same.
    const id = await leaveCluster(open, init, { absentIsFine: true })
    const broker = await removeBroker(open.admin, init)
    const kept = crds ? await removeCrds(open.admin, init) : []
    const parts = [
      id === undefined ? undefined : `${id} has left the clusterset`,
      broker ? 'the broker is gone' : undefined,
    ]
    const said = parts.filter((part) => part !== undefined).join('; ')
    output.answer(`${said === '' ? 'Sealane was not there' : said}; ${crdsLeft(crds, kept)}\n`)
  })
}

function crdsLeft(asked: boolean, kept: readonly string[]): string {
  if (!asked) return 'the CRDs stay (--crds)'
  return kept.length === 0 ? 'the CRDs are gone' : `the CRDs are gone, but for ${kept.join(', ')}`
}
