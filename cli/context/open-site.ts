/** Opens a site for one command: its site file, its objects and its state. */
import { mkdirSync, readFileSync, statSync } from 'node:fs'
import { FileApi, type SiteConfig, readSiteFile } from '../../kubeapi/files/files.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type CommandContext, quoted } from './command-context.ts'
import type { ClusterAdmin } from './cluster-admin.ts'
import type { Site } from '../../compose/site/site.ts'
import { PlainLogger } from './output.ts'
import { interruption } from './timeout.ts'

export interface OpenSite extends Site {
  /** Set for a real cluster that was opened with an administrator's kubeconfig. */
  readonly admin?: ClusterAdmin
}

export interface OpenSiteInit extends CommandContext {
  /** Receives warnings about files that cannot be read. By default they are printed to stderr. */
  readonly logger?: Logger | undefined
  /** Creates the metrics of a real cluster's driver. By default nothing is counted. */
  readonly metrics?: ((config: SiteConfig) => Metrics) | undefined
  /** The command runs until the signal. For every other command an abort of the signal is a failure. */
  readonly serves?: boolean
  /**
   * The components that will run: only the kinds that they watch are read from a real cluster. All kinds if undefined.
   */
  readonly components?: readonly string[] | undefined
  /** State that cannot be read is a failure, reported after the work is done. */
  readonly wantsAll?: boolean
}

/**
 * Opens the site, runs `work` and closes the site, also on failure. Throws the errors of the site file or the state.
 */
export async function withSite<T>(file: string, init: OpenSiteInit, work: (site: OpenSite) => Promise<T>): Promise<T> {
  const { signal, serves = false, wantsAll = false } = init
  const site = await openSite(await readSite(file, serves), init)
  try {
    signal.throwIfAborted()
    const result = await work(site)
    if (wantsAll) checkAllRead(site)
    return result
  } catch (error) {
    throw signal.aborted && !serves ? interruption(signal) : error
  } finally {
    await site.api.close()
  }
}

async function readSite(file: string, serves: boolean): Promise<SiteConfig> {
  const kind = statSync(file, { throwIfNoEntry: false })
  if (kind === undefined || kind.isDirectory()) {
    const problem = kind === undefined ? 'no such file' : 'expected a file, got a folder'
    const hint = 'name the site file with --site FILE, or run this in the folder that has site.yaml'
    // A long-running part runs on a node or in a pod and finds its site only by the file.
    const cluster = serves ? '' : '; for a Kubernetes cluster: --context NAME'
    throw new UserError(`--site ${quoted(file)}: ${problem}`, { hint: `${hint}${cluster}` })
  }
  return readSiteFile(file)
}

async function openSite(config: SiteConfig, init: OpenSiteInit): Promise<OpenSite> {
  const { output, signal, logger = new PlainLogger(output), components, serves = false } = init
  const deps = { clock: new SystemClock(), logger }
  const metrics = init.metrics?.(config)
  if (config.kubernetes !== undefined) {
    // Loaded on demand: the processes of a plain site need none of it.
    const { openKubeSite } = await import('../../compose/site/kube-site.ts')
    const settings = readFileSync(config.file, 'utf8')
    const { api, kube } = await openKubeSite(
      { ...deps, metrics },
      { access: config.kubernetes, settings, components, signal },
    )
    return { config, api, kube, metrics }
  }
  makeState(config)
  const { objects, state, gateways } = config
  const api = new FileApi(deps, { objects, state, gateways, once: !serves })
  return { config, api, leases: api.leases, metrics }
}

function checkAllRead({ api }: OpenSite): void {
  const troubled = api instanceof FileApi ? api.troubledState().length : 0
  if (troubled === 0) return
  const count = troubled === 1 ? 'one place' : `${troubled} places`
  throw new UserError(`the state in ${count} could not be read: it is not shown`)
}

/** An unreadable state folder would look like a site without any state. */
function makeState({ state, file }: SiteConfig): void {
  try {
    mkdirSync(state, { recursive: true })
  } catch (cause) {
    throw new UserError(
      `${state}: cannot be used as state folder (spec.state of ${file}): ${(cause as Error).message}`,
      {
        cause,
      },
    )
  }
}
