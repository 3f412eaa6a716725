/**
 * Opens a plain site on a node that does not see its folder, by the one file that `sealane site invite` has written:
 * enrols with the invitation, reads the site file from the hub, and follows the objects of the hub. Where no hub answers,
 * the node continues from what it knew.
 */
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  InvalidFileError,
  type NodeFile,
  type RunningSite,
  type SiteConfig,
  planRunningSite,
  warnOfSite,
} from '../../kubeapi/files/files.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { HubConnection, type NodeTls, RemoteApi } from '../../kubeapi/remote/remote.ts'
import { type Clock, unlessAborted } from '../../reconcile/reconcile.ts'
import { UserError, messageOf, parseHostPort, replaceFile } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { HubStore } from './hub-store.ts'
import type { TreePlaces } from './hub-tree.ts'
import { NodeIdentity } from './node-identity.ts'

export interface SiteNode {
  readonly config: SiteConfig
  readonly api: RemoteApi
  /** The name of the only Node that this machine may run. */
  readonly node: string
  /** Keeps the certificate and the copy of the site file current until the signal. Never rejects. */
  readonly keep: (signal: AbortSignal) => Promise<void>
  /** Set if this machine is one of several hubs of the site. */
  readonly hub?: HubRole
}

/** What one of several hubs works with. */
export interface HubRole {
  readonly places: TreePlaces
  /** Its own key and certificate, and the authority of the site. */
  readonly tls: () => NodeTls
}

interface Deps {
  readonly clock: Clock
  readonly logger: Logger
}

/** The site file seldom changes, and a gateway reads it again only when it looks at its settings. */
const KEEP_MS = 30_000

/** Throws UserError if the node has no certificate, or never had the site file, and no hub gives it one. */
export async function openSiteNode(deps: Deps, file: NodeFile, signal: AbortSignal): Promise<SiteNode> {
  const identity = await NodeIdentity.open(file)
  const connection = new HubConnection(deps, { addresses: file.hubs, tls: () => identity.tls() })
  try {
    if (!identity.isEnrolled) await enrol(connection, identity, file, signal)
    const config = await readConfig(deps, connection, file, signal)
    const api = new RemoteApi({ ...deps, connection }, { known: join(file.state, 'known') })
    const keep = (until: AbortSignal): Promise<void> => keepCurrent(deps, connection, identity, file, until)
    const role = { places: copiesOf(file), tls: () => identity.tls() }
    return { config, api, node: file.node, keep, ...(identity.isHub ? { hub: role } : {}) }
  } catch (error) {
    connection.close()
    throw error
  }
}

/** Where one of several hubs keeps the files of the site, if the site did not begin on this machine. */
export function copiesOf({ state }: Pick<NodeFile, 'state'>): TreePlaces {
  const folder = join(state, 'site')
  return { file: join(folder, 'site.yaml'), objects: join(folder, 'objects'), state: join(folder, 'state') }
}

/**
 * Opens a site with several hubs on the machine where it began, and that has its folder. Its parts speak with the hub
 * that acts, which may be another one. Throws UserError if the state folder cannot be used.
 */
export async function openFirstHub(
  deps: Deps,
  { config, node }: { readonly config: SiteConfig; readonly node: string },
): Promise<SiteNode> {
  const { file: path, objects, state, name: site, hub } = config
  const store = await HubStore.open(deps.clock, { state, site })
  const { certificateAuthority } = store
  const hubs = hub.listen.map((text) => parseHostPort(text, `spec.hub.listen of ${path}`))
  const file: NodeFile = { file: path, node, site, hubs, token: '', certificateAuthority, state }
  const identity = await NodeIdentity.open(file)
  if (!identity.isEnrolled) await identity.keep(await store.admitOwn(node, await identity.csr()))
  const connection = new HubConnection(deps, { addresses: hubs, tls: () => identity.tls() })
  const api = new RemoteApi({ ...deps, connection }, { known: join(state, 'known') })
  const keep = (until: AbortSignal): Promise<void> => keepCurrent(deps, connection, identity, file, until)
  const role = { places: { file: path, objects, state }, tls: () => identity.tls() }
  return { config, api, node, keep, hub: role }
}

async function enrol(
  connection: HubConnection,
  identity: NodeIdentity,
  file: NodeFile,
  signal: AbortSignal,
): Promise<void> {
  const { token, node } = file
  try {
    const { value } = await connection.enrol({ token, node, csr: await identity.csr() }, signal)
    await identity.keep(value)
  } catch (error) {
    if (signal.aborted) throw error
    const isRefused = error instanceof ClusterApiError && error.code !== 'Unavailable'
    const hint = isRefused
      ? `on the node that holds the folder of the site: sealane site invite ${node}`
      : 'check that sealane runs on the node that holds the folder of the site, and its spec.hub.listen'
    const reason = isRefused ? 'HubRefused' : 'HubUnreachable'
    throw new UserError(`${file.file}: no certificate for node ${node}: ${messageOf(error)}`, {
      hint,
      reason,
      cause: error,
    })
  }
  // The present connection has none.
  connection.reset()
}

async function readConfig(
  { logger }: Deps,
  connection: HubConnection,
  file: NodeFile,
  signal: AbortSignal,
): Promise<SiteConfig> {
  try {
    const site = await fetchConfig(connection, file, signal)
    warnOfSite(site, logger)
    return atHome(file, site.config)
  } catch (error) {
    if (signal.aborted || error instanceof InvalidFileError) throw error
    const isRefused = error instanceof ClusterApiError && error.code === 'Unauthorized'
    const reason = isRefused ? 'HubRefused' : 'HubUnreachable'
    const text = await readFile(copyOf(file), 'utf8').catch(() => undefined)
    if (text === undefined) {
      const hint = 'check that sealane runs on the node that holds the folder of the site'
      throw new UserError(`${file.file}: no site file: ${messageOf(error)}`, { hint, reason, cause: error })
    }
    logger.warn('the site file is the last one that the hub gave', { reason, why: messageOf(error) })
    return atHome(file, planRunningSite(copyOf(file), text, undefined).config)
  }
}

/**
 * Reads the site file from the hub and stores it if it is valid. Throws ClusterApiError, and InvalidFileError if neither
 * this text nor the stored one can be used.
 */
async function fetchConfig(connection: HubConnection, file: NodeFile, signal: AbortSignal): Promise<RunningSite> {
  const { value } = await connection.ask({ verb: 'readSite' }, signal)
  if (typeof value !== 'string') throw new ClusterApiError('Unavailable', 'the hub has answered without a site file')
  const stored = await readFile(copyOf(file), 'utf8').catch(() => undefined)
  const site = planRunningSite(copyOf(file), value, stored)
  await mkdir(file.state, { recursive: true })
  if (site.from === 'file' && stored !== value) await replaceFile(copyOf(file), value)
  return site
}

function copyOf({ state }: NodeFile): string {
  return join(state, 'site.yaml')
}

/** The paths of the site file are those of another machine. */
function atHome({ state }: NodeFile, config: SiteConfig): SiteConfig {
  return { ...config, state, objects: join(state, 'objects'), identity: join(state, 'identity') }
}

async function keepCurrent(
  { clock, logger }: Deps,
  connection: HubConnection,
  identity: NodeIdentity,
  file: NodeFile,
  signal: AbortSignal,
): Promise<void> {
  const wait = (): Promise<boolean> => unlessAborted(clock.sleep(KEEP_MS, signal), signal)
  while (await wait()) {
    try {
      await fetchConfig(connection, file, signal)
      if (!identity.isRenewalDue(clock.now())) continue
      await identity.keep((await connection.ask({ verb: 'renew', csr: await identity.csr() }, signal)).value)
      logger.info('the certificate of this node is renewed')
    } catch (error) {
      // The connection itself reports that no hub answers.
      if (error instanceof ClusterApiError && error.code === 'Unavailable') continue
      logger.warn('cannot refresh what the hub gives', { reason: 'HubRefused', why: messageOf(error) })
    }
  }
}
