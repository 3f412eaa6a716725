/** Opens the cluster or site that a command examines, and gathers facts about it, once or repeatedly. */
import type { Area, FactSet } from '../../explain/facts/facts.ts'
import { selectorLabels } from '../../install/values/values.ts'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import type { DynamicClient } from '../../kubeapi/kube/kube.ts'
import { SYSTEM_NAMESPACE } from '../../model/model.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  type ClusterAdmin,
  type CommandContext,
  type KubeTarget,
  type Target,
  targetFlags,
  withinTime,
} from '../context/context.ts'
import type { Progress } from './probes/progress.ts'
import type { OpenSite } from '../context/open-site.ts'
import { gatherFacts } from './ask.ts'

export interface MemberInit extends Target {
  /** The status pages on this machine, for a site. */
  readonly pages: readonly string[]
  readonly timeoutMs: number
  /** See KubeFactsInit.asksAgentFirst. For a screen that has to appear within a second. */
  readonly quick?: boolean
  /** The probes that take too long for `sealane status`. If undefined, only objects and status pages are read. */
  readonly closer?: CloserLook
}

export interface CloserLook {
  /** Undefined for all areas. */
  readonly area?: Area | undefined
  readonly progress: Progress
}

/** Of a cluster it also ends with `signal`; a site ends with the context's alone. */
type Gather = (signal?: AbortSignal) => Promise<FactSet>

/** What was opened, for questions that facts do not answer. */
export type OpenedMember =
  | { readonly t: 'site'; readonly api: ClusterApi }
  | {
      readonly t: 'kube'
      readonly dynamic: Pick<DynamicClient, 'listPicked'>
      readonly title: string
      readonly admin: Pick<ClusterAdmin, 'title' | 'list' | 'exec'>
    }

type Work<T> = (gather: Gather, opened: OpenedMember) => Promise<T>

/** Loads only the driver that is needed. Throws UserError if the target cannot be examined. */
export async function openMember<T>(init: MemberInit, context: CommandContext, work: Work<T>): Promise<T> {
  return init.kube === undefined ? openSiteMember(init, context, work) : openKubeMember(init.kube, init, context, work)
}

async function openSiteMember<T>(
  { site, pages, timeoutMs, closer }: MemberInit,
  context: CommandContext,
  work: Work<T>,
): Promise<T> {
  const { withSite } = await import('../context/open-site.ts')
  const { siteFacts } = await import('./site-facts.ts')
  const { signal } = context
  const init = { ...context, anyNode: true }
  const gather = async ({ api, config }: OpenSite): Promise<FactSet> => {
    const facts = siteFacts(api, { file: config.file, pages, timeoutMs, signal })
    const title = `site ${config.name}`
    if (closer === undefined) return gatherFacts(title, () => facts)
    const { siteProbes } = await import('./probes/site-probes.ts')
    const { area, progress } = closer
    const probes = siteProbes(api, { config, area, progress, signal })
    const all = Promise.all([progress.follow('objects and status pages', facts), probes])
    return gatherFacts(title, async () => (await all).flat())
  }
  return withSite(site, init, (opened) => {
    // Files are read again for each look, so that what could not be read once, or was changed without a notice of the
    // kernel, is shown as it is now. The first reading has printed the warnings.
    const isOfFiles = opened.remote === undefined && opened.kube === undefined
    let isFirst = true
    const look = (): Promise<FactSet> => {
      const again = isOfFiles && !isFirst
      isFirst = false
      return again ? withSite(site, { ...init, logger: QUIET }, gather) : gather(opened)
    }
    return work(look, { t: 'site', api: opened.api })
  })
}

const nothing = (): void => undefined
const QUIET: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing, child: () => QUIET }

async function openKubeMember<T>(
  target: KubeTarget,
  { timeoutMs, closer, quick = false }: MemberInit,
  context: CommandContext,
  work: Work<T>,
): Promise<T> {
  const { withAdmin } = await import('../context/with-admin.ts')
  const { kubeFacts } = await import('./kube-facts.ts')
  return withAdmin(target, new SystemClock(), context, async ({ api, admin }) => {
    await checkInstalled(admin, target, timeoutMs, context.signal)
    return work(
      async (limit) => {
        const signal = limit === undefined ? context.signal : AbortSignal.any([context.signal, limit])
        const init = { title: admin.title, timeoutMs, signal }
        const facts = kubeFacts(api.dynamic, { ...init, asksAgentFirst: quick })
        if (closer === undefined) return gatherFacts(admin.title, () => facts)
        const { networkProbes } = await import('./probes/network-probes.ts')
        const { definitionProbes } = await import('./probes/definition-probes.ts')
        const { podProbes } = await import('./probes/pod-probes.ts')
        const { area, progress } = closer
        const probe = { area, progress, signal }
        const definitions = definitionProbes(api.dynamic, { ...probe, title: admin.title })
        const probes = [podProbes(admin, probe), networkProbes(admin, probe), definitions]
        const all = Promise.all([progress.follow('objects and status pages', facts), ...probes])
        return gatherFacts(admin.title, async () => (await all).flat())
      },
      { t: 'kube', dynamic: api.dynamic, title: admin.title, admin },
    )
  })
}

type Installed = Pick<ClusterAdmin, 'title' | 'contextName' | 'knows' | 'list'>

/** Throws NotInstalledError if the cluster has neither a kind of Sealane nor a part: such a cluster is not down. */
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
  if (others || (await hasParts(admin, timeoutMs, signal))) return
  throw new NotInstalledError(`${admin.title}: Sealane is not installed`, {
    hint: `join this cluster first: sealane join ${targetFlags(target, admin.contextName)} --token-file FILE`,
  })
}

/** A user may have deleted every CRD while the parts still run. False if this user may not list the parts. */
async function hasParts(admin: Installed, timeoutMs: number, signal: AbortSignal): Promise<boolean> {
  const labelSelector = Object.entries(selectorLabels('agent'))
    .map((pair) => pair.join('='))
    .join(',')
  const parts = withinTime(signal, timeoutMs, (limited) =>
    admin.list('apps/v1', 'Deployment', { namespace: SYSTEM_NAMESPACE, labelSelector }, limited),
  )
  return (await parts.catch(() => [])).length > 0
}

/** Lets a command that examines several clusters skip this one. */
export class NotInstalledError extends UserError {}
