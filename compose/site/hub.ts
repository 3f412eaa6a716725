/** Starts the hub of a plain site: on the node that holds its folder, or one of several. */
import { IdentityFileError, type MemberIdentity, folderIdentity } from '../../protocol/membership/membership.ts'
import { unlessAborted } from '../../reconcile/reconcile.ts'
import { type ComponentDeps, UserError, formatHostPort, messageOf } from '../../runtime/runtime.ts'
import { type ActingSite, serveHub, serveHubs } from '../hub/hub.ts'
import { run as runAgent } from './agent.ts'
import { type SiteRun, hubAddresses, untilLeft } from './part.ts'

const IDENTITY_MS = 2000

export async function run(deps: ComponentDeps, site: SiteRun, signal: AbortSignal): Promise<void> {
  const { api, config, leases, remote } = site
  if (leases === undefined) throw new Error('a site without Leases')
  const addresses = hubAddresses(config)
  if (remote?.hub === undefined) {
    await serveHub(deps, { api, config, leases, addresses }, untilLeft(api, signal))
    return
  }
  const [own, ...others] = addresses
  if (own === undefined || others.length > 0) {
    const found = addresses.map((address) => formatHostPort(address)).join(', ')
    throw new UserError(`spec.hub.listen of ${config.file}: expected one address of each of several hubs, got ${found}`)
  }
  const init = { ...remote.hub, own, site: config.name, hubs: config.hub.listen, started: config }
  await serveHubs(deps, init, (acting, until) => act(deps, site, acting, until), signal)
}

/** Runs the agent while this hub acts. */
async function act(deps: ComponentDeps, site: SiteRun, acting: ActingSite, signal: AbortSignal): Promise<void> {
  const identity = folderIdentity(acting.config.identity)
  let why: string | undefined
  const read = async (): Promise<MemberIdentity | undefined> => {
    try {
      return await identity.read()
    } catch (error) {
      if (!(error instanceof IdentityFileError)) throw error
      // Another hub may have what this disk has lost, and gives it only to a hub that runs.
      if (why !== error.message)
        deps.logger.warn('the identity cannot be used', { reason: 'StateFileDamaged', why: messageOf(error) })
      why = error.message
      return undefined
    }
  }
  while ((await read()) === undefined) {
    if (!(await unlessAborted(deps.clock.sleep(IDENTITY_MS, signal), signal))) return
  }
  const { remote, ...rest } = site
  await runAgent(deps, { ...rest, ...acting, identity, isOnlyAgent: remote !== undefined }, signal)
}
