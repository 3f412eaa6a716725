/** Opens a cluster or site, asks all questions at once, and writes the answers into a bundle. */
import { Buffer } from 'node:buffer'
import { writeFile } from 'node:fs/promises'
import { release } from 'node:os'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { sealaneVersion } from '../../runtime/runtime.ts'
import { refuseExisting, writeBackupFile } from '../broker/broker.ts'
import type { CommandContext, Target } from '../context/context.ts'
import { type BundleItem, type Collected, type Missing, ROOT, collect } from './items.ts'
import { packTar } from './tar.ts'

// Writes the answers into one file that only its owner can read.

const BUNDLE_FORMAT = 1

interface BundleFile {
  readonly file: string
  /** Replaces an existing file. */
  readonly force: boolean
  /** The name of the cluster or site. */
  readonly target: string
  readonly at: Date
}

/** Returns the size of the file. Throws UserError if the file exists or cannot be written. */
async function writeBundle({ files, missing }: Collected, { file, force, target, at }: BundleFile): Promise<number> {
  const about = {
    format: BUNDLE_FORMAT,
    takenAt: at.toISOString(),
    target,
    versions: { sealane: sealaneVersion(), node: process.version, kernel: release() },
    missing,
  }
  const first = { name: 'bundle.json', content: Buffer.from(`${JSON.stringify(about, undefined, 1)}\n`) }
  const named = [first, ...files].map(({ name, content }) => ({ name: ROOT + name, content }))
  const packed = await promisify(gzip)(packTar(named, at.getTime()))
  const write = (part: string): Promise<void> => writeFile(part, packed, { flag: 'wx', mode: 0o600 })
  await writeBackupFile({ file, force, write, check: () => undefined })
  return packed.length
}

export interface GatherInit extends Target {
  readonly file: string
  readonly force: boolean
  readonly at: Date
  /** The status pages on this machine, for a site. */
  readonly pages: readonly string[]
  /** The log files, for a site. */
  readonly logs: readonly string[]
  /** The time limit of each item, in milliseconds. */
  readonly timeout: number
}

export interface Gathered {
  readonly count: number
  readonly bytes: number
  readonly missing: readonly Missing[]
}

/** Throws UserError if the target cannot be opened or the file cannot be written. */
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
    const { withAdmin } = await import('../context/with-admin.ts')
    const { kubeItems } = await import('./kube-items.ts')
    return withAdmin(kube, new SystemClock(), context, async ({ api, admin: { title } }) =>
      write(title, await kubeItems(api.dynamic, { title, timeoutMs, signal })),
    )
  }
  const { withSite } = await import('../context/open-site.ts')
  const { siteItems } = await import('./site-items.ts')
  return withSite(site, context, ({ api, config }) =>
    write(`site ${config.name}`, siteItems(api, { config, pages, logs, timeoutMs, signal })),
  )
}
