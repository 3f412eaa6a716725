/** Opens the cluster or site, asks it everything at once, and writes the bundle. */
import { SystemClock } from '../../reconcile/clock.ts'
import type { CommandContext } from '../context.ts'
import type { Target } from '../open-target.ts'
import { refuseExisting } from '../broker/backup-file.ts'
import { type BundleItem, type Missing, collect } from './items.ts'
import { writeBundle } from './write-bundle.ts'

export interface GatherInit extends Target {
  readonly file: string
  readonly force: boolean
  readonly at: Date
  /** Of a site: status pages on this machine. */
  readonly pages: readonly string[]
  /** Of a site: files of logs. */
  readonly logs: readonly string[]
  /** For each item, in milliseconds. */
  readonly timeout: number
}

export interface Gathered {
  readonly count: number
  readonly bytes: number
  readonly missing: readonly Missing[]
}

/** Throws UserError where nothing can be asked, or the file cannot be written. */
export async function gather(init: GatherInit, context: CommandContext): Promise<Gathered> {
  const write = async (target: string, items: readonly BundleItem[]): Promise<Gathered> => {
    const collected = await collect(items, context.signal)
    const bytes = await writeBundle(collected, { ...init, target })
    return { count: collected.files.length, bytes, missing: collected.missing }
  }
  await refuseExisting(init)
  const { kube, site, pages, logs, timeout: timeoutMs } = init
  const { signal } = context
  if (kube !== undefined) {
    const { withAdmin } = await import('../kube/access/with-admin.ts')
    const { kubeItems } = await import('./kube-items.ts')
    return withAdmin(kube, new SystemClock(), context, async ({ api, admin: { title } }) =>
      write(title, await kubeItems(api.dynamic, { title, timeoutMs, signal })),
    )
  }
  const { withSite } = await import('../open-site.ts')
  const { siteItems } = await import('./site-items.ts')
  return withSite(site, context, ({ api, config }) =>
    write(`site ${config.name}`, siteItems(api, { config, pages, logs, timeoutMs, signal })),
  )
}
