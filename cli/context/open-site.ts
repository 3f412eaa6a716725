/** Opens a site for one command: its site file, its objects and its state. */
import { existsSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import {
  FileApi,
  type NodeFile,
  type SiteConfig,
  readNodeFile,
  readRunningSite,
  readSiteFile,
} from '../../kubeapi/files/files.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import { UserError, kindName, messageOf } from '../../runtime/runtime.ts'
import { type CommandContext, quoted } from './command-context.ts'
import type { ClusterAdmin } from './cluster-admin.ts'
import type { Site } from '../../compose/site/site.ts'
import { PlainLogger } from './output.ts'
import { interruption } from './timeout.ts'

/** Longer than the agent takes to note an object. Without an agent, changes of the user show that much later. */
const LEFT_TO_AGENT_MS = 50

export interface OpenSite extends Site {
  /** Set for a real cluster that was opened with an administrator's kubeconfig. */
  readonly admin?: ClusterAdmin
}

export interface OpenSiteInit extends CommandContext {
  /** Receives warnings about files that cannot be read. By default they are printed to stderr. */
  readonly logger?: Logger | undefined
  /** Creates the metrics of a real cluster's driver. By default nothing is counted. */
  readonly metrics?: ((site: Pick<Site, 'config' | 'remote'>) => Metrics) | undefined
  /** The command runs until the signal. For every other command an abort of the signal is a failure. */
  readonly serves?: boolean
  /**
   * The components that will run: only the kinds that they watch are read from a real cluster. All kinds if undefined.
   */
  readonly components?: readonly string[] | undefined
  /**
   * The command also works on a node that does not see the folder of its site, with the file of `sealane site invite`.
   * Otherwise such a file is refused.
   */
  readonly anyNode?: boolean
  /** The Node that this machine runs, for a command that serves. */
  readonly node?: string
  /** The command is about the files of this machine's hub, whether it acts or follows. */
  readonly wantsHub?: boolean
  /** State that cannot be read is a failure, reported after the work is done. */
  readonly wantsAll?: boolean
}

/**
 * Opens the site, runs `work` and closes the site, also on failure. Throws the errors of the site file or the state.
 */
export async function withSite<T>(file: string, init: OpenSiteInit, work: (site: OpenSite) => Promise<T>): Promise<T> {
  const { signal, serves = false, wantsAll = false } = init
  const nodeFile = await readNodeFile(file)
  const site =
    nodeFile === undefined ? await openSite(await readSite(file, init), init) : await openNode(nodeFile, init)
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

/** Why the path is no site file. Undefined if it is a file. */
function siteFileProblem(file: string): string | undefined {
  try {
    const kind = statSync(file, { throwIfNoEntry: false })
    if (kind?.isFile() === true) return undefined
    return kind === undefined ? 'no such file' : `expected a file, got ${kindName(kind)}`
  } catch (error) {
    return `expected a file, got ${messageOf(error)}`
  }
}

async function readSite(
  file: string,
  { serves = false, output, logger = new PlainLogger(output) }: OpenSiteInit,
): Promise<SiteConfig> {
  const problem = siteFileProblem(file)
  if (problem !== undefined) {
    const hint = 'name the site file with --site FILE, or run this in the folder that has site.yaml'
    // A long-running part runs on a node or in a pod and finds its site only by the file.
    const cluster = serves ? '' : '; for a Kubernetes cluster: --context NAME'
    throw new UserError(`--site ${quoted(file)}: ${problem}`, { hint: `${hint}${cluster}` })
  }
  return serves ? readRunningSite(file, logger) : readSiteFile(file)
}

async function openSite(config: SiteConfig, init: OpenSiteInit): Promise<OpenSite> {
  const { output, signal, logger = new PlainLogger(output), components, serves = false } = init
  const deps = { clock: new SystemClock(), logger }
  const metrics = init.metrics?.({ config })
  if (config.kubernetes !== undefined) {
    // Loaded on demand: the processes of a plain site need none of it.
    const { openKubeSite } = await import('../../compose/site/kube-site.ts')
    const settings = readFileSync(config.file, 'utf8')
    const { api, kube } = await openKubeSite(
      { ...deps, metrics },
      { access: config.kubernetes, settings, components, signal, node: init.node },
    )
    return { config, api, kube, metrics }
  }
  const { hasSeveralHubs, mayShareWithHubs } = await import('../../compose/site/part.ts')
  if (hasSeveralHubs(config)) {
    const { openFirstHub } = await import('../../compose/hub/open-site-node.ts')
    if (serves && init.node !== undefined) {
      makeState(config)
      const { node, api, keep, hub } = await openFirstHub(deps, { config, node: init.node })
      const remote = { node, keep, ...(hub === undefined ? {} : { hub }) }
      return { config, api, leases: api.leases, remote, metrics: init.metrics?.({ config, remote }) }
    }
    if (init.anyNode !== true) await checkActs(config)
  }
  makeState(config)
  const { objects, state, gateways } = config
  const notesAfterMs = serves && components !== undefined && !components.includes('agent') ? LEFT_TO_AGENT_MS : 0
  // Another node may see the folder of a hub, which would take each removal for a fault of its disk.
  const severalHubs = mayShareWithHubs(config)
  const api = new FileApi(deps, { objects, state, gateways, once: !serves, notesAfterMs, severalHubs })
  return { config, api, leases: api.leases, metrics }
}

/** Opens a site whose folder is on another machine. */
async function openNode(file: NodeFile, init: OpenSiteInit): Promise<OpenSite> {
  const { output, signal, logger = new PlainLogger(output), anyNode = false } = init
  // Loaded on demand: most commands and sites need none of it.
  const { openSiteNode, copiesOf } = await import('../../compose/hub/open-site-node.ts')
  const copies = copiesOf(file)
  if ((!anyNode || init.wantsHub === true) && existsSync(copies.file)) {
    const { objects, state } = copies
    const config = { ...(await readSiteFile(copies.file)), objects, state, identity: join(state, 'identity') }
    if (init.wantsHub !== true) await checkActs(config)
    const api = new FileApi(
      { clock: new SystemClock(), logger },
      { objects, state, gateways: config.gateways, once: true, severalHubs: true },
    )
    return { config, api, leases: api.leases, metrics: undefined }
  }
  if (!anyNode) {
    throw new UserError(`--site ${quoted(file.file)}: this command needs the folder of the site`, {
      hint: 'run it on the node that holds the folder, with its site file',
    })
  }
  const { config, api, node, keep, hub } = await openSiteNode({ clock: new SystemClock(), logger }, file, signal)
  const remote = { node, keep, ...(hub === undefined ? {} : { hub }) }
  return { config, api, leases: api.leases, remote, metrics: init.metrics?.({ config, remote }) }
}

/** What is written on a machine whose hub only follows would be replaced. */
async function checkActs({ state, file }: SiteConfig): Promise<void> {
  const { TermStore } = await import('../../compose/hub/hub-tree.ts')
  if (new TermStore(state).acts() !== false) return
  throw new UserError(`${file}: the hub of this machine follows another one`, {
    hint: 'run the command on the machine whose hub acts: the log of each hub names it',
  })
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
