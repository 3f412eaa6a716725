/** Opens the cluster or the site that `sealane status` is about, for one look or many. */
import { type Diagnosis, diagnoseMember } from '../../explain/diagnose-member.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { UserError } from '../../runtime/user-error.ts'
import type { CommandContext } from '../context.ts'
import type { Target } from '../open-target.ts'
import { type KubeTarget, targetFlags } from '../target.ts'
import { withinTime } from '../within-time.ts'
import { gatherFacts } from './gather-facts.ts'

export interface MemberInit extends Target {
  /** Of a site: status pages on this machine. */
  readonly pages: readonly string[]
  readonly timeoutMs: number
}

type Diagnose = () => Promise<Diagnosis>

/** Only the driver that is meant is loaded. Throws UserError where nothing can be looked at. */
export async function openMember<T>(
  init: MemberInit,
  context: CommandContext,
  work: (diagnose: Diagnose) => Promise<T>,
): Promise<T> {
  return init.kube === undefined ? openSiteMember(init, context, work) : openKubeMember(init.kube, init, context, work)
}

async function openSiteMember<T>(
  { site, pages, timeoutMs }: MemberInit,
  context: CommandContext,
  work: (diagnose: Diagnose) => Promise<T>,
): Promise<T> {
  const { withSite } = await import('../open-site.ts')
  const { siteFacts } = await import('./site-facts.ts')
  const { signal } = context
  return withSite(site, context, ({ api, config }) =>
    work(async () => {
      const facts = () => siteFacts(api, { file: config.file, pages, timeoutMs, signal })
      return diagnoseMember(await gatherFacts(`site ${config.name}`, facts))
    }),
  )
}

async function openKubeMember<T>(
  target: KubeTarget,
  { timeoutMs }: MemberInit,
  context: CommandContext,
  work: (diagnose: Diagnose) => Promise<T>,
): Promise<T> {
  const { withAdmin } = await import('../kube/access/installed-site.ts')
  const { kubeFacts } = await import('./kube-facts.ts')
  return withAdmin(target, new SystemClock(), context, async ({ api, admin }) => {
    await checkInstalled(admin, target, timeoutMs, context.signal)
    const init = { title: admin.title, timeoutMs, signal: context.signal }
    return work(async () => diagnoseMember(await gatherFacts(admin.title, () => kubeFacts(api.dynamic, init))))
  })
}

interface Installed {
  readonly title: string
  readonly contextName: string | undefined
  knows(type: { readonly apiVersion: string; readonly kind: string }, signal: AbortSignal): Promise<boolean>
}

/** A cluster that has no kind of ours at all is not one that is down. */
async function checkInstalled(
  admin: Installed,
  target: KubeTarget,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<void> {
  const isKnown = await withinTime(signal, timeoutMs, (limited) =>
    admin.knows({ apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway' }, limited),
  )
  if (isKnown) return
  const others = await withinTime(signal, timeoutMs, (limited) =>
    admin.knows({ apiVersion: 'sealane.io/v1alpha1', kind: 'Cluster' }, limited),
  )
  if (others) return
  throw new UserError(`${admin.title}: Sealane is not installed there`, {
    hint: `first: sealane join ${targetFlags(target, admin.contextName)} --token-file FILE`,
  })
}
