/** Runs the hub of a plain site on the node that holds its folder, and each of several hubs. */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { FileApi, InvalidFileError, type SiteConfig, readSiteFile } from '../../kubeapi/files/files.ts'
import type { ClusterApi, LeaseStore } from '../../kubeapi/kubeapi.ts'
import { type Hub, HubConnection, HubMember, type Identified, openHub } from '../../kubeapi/remote/remote.ts'
import { readNodeCertificate } from '../../protocol/identity/identity.ts'
import {
  type ComponentDeps,
  type HostPort,
  UserError,
  formatHostPort,
  messageOf,
  parseHostPort,
} from '../../runtime/runtime.ts'
import { unlessAborted, untilAborted } from '../../reconcile/reconcile.ts'
import { HubStore } from './hub-store.ts'
import { HubTree, TermStore } from './hub-tree.ts'
import type { HubRole } from './open-site-node.ts'

/** Its certificate is valid for 90 days, and is replaced in the running process. */
const RENEW_MS = 24 * 3_600_000
const AUTHORITY_MS = 1000

export interface HubSite {
  readonly config: SiteConfig
  readonly api: ClusterApi
  readonly leases: LeaseStore
  /** At least one. */
  readonly addresses: readonly HostPort[]
}

/** Serves until the signal. Throws UserError if an address cannot be used. */
export async function serveHub(deps: ComponentDeps, site: HubSite, signal: AbortSignal): Promise<void> {
  const { clock, logger, status } = deps
  const { config, api, leases, addresses } = site
  const store = await HubStore.open(clock, { state: config.state, site: config.name })
  const readSite = (): Promise<string> => readFile(config.file, 'utf8')
  const init = {
    ...{ clock, logger, api, leases, readSite },
    identify: (certificate: Uint8Array) => store.identify(certificate),
    enrol: (request: Parameters<HubStore['enrol']>[0]) => store.enrol(request),
    renew: (node: string, csr: string) => store.renew(node, csr),
  }
  const hubs: Hub[] = []
  try {
    for (const address of addresses) {
      const tls = await store.serverTls()
      const { hub } = await openHub(init, { ...address, tls }).catch((cause: unknown) => {
        const title = formatHostPort(address)
        throw new UserError(`spec.hub.listen of ${config.file}: cannot listen on ${title}: ${messageOf(cause)}`, {
          cause,
        })
      })
      hubs.push(hub)
      logger.info('the hub of the site is up', { address: formatHostPort(address) })
    }
    status.report('hub', () => hubs.map((hub) => hub.state()))
    const wait = (): Promise<boolean> => unlessAborted(clock.sleep(RENEW_MS, signal), signal)
    while (await wait()) {
      const tls = await store.serverTls()
      for (const hub of hubs) hub.renewTls(tls)
    }
  } finally {
    await Promise.all(hubs.map((hub) => hub.close()))
  }
}

export interface HubsInit extends HubRole {
  /** The name of the site. */
  readonly site: string
  /** The only address of spec.hub.listen that this machine has. */
  readonly own: HostPort
  /** All of spec.hub.listen, in its order. */
  readonly hubs: readonly string[]
  /** What this process started with. It counts while the site file is not valid. */
  readonly started?: SiteConfig
}

/** What one of several hubs has while it acts. */
export interface ActingSite {
  readonly config: SiteConfig
  readonly api: FileApi
  readonly leases: LeaseStore
}

/**
 * Takes part as one of several hubs until the signal. While this one acts, it serves the files of the site and runs
 * `work`. Throws UserError if the address or the files cannot be used, and the error of `work`.
 */
export async function serveHubs(
  deps: ComponentDeps,
  init: HubsInit,
  work: (site: ActingSite, signal: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const { clock, logger, status } = deps
  const { site, places, tls, hubs } = init
  const own = formatHostPort(init.own)
  const terms = new TermStore(places.state)
  const stored = terms.load(own)
  const tree = new HubTree(places, clock)
  // The machine with the folder is the first hub, and the only one until others have all files.
  if (stored === undefined && existsSync(places.file) && tree.members().length === 0) await tree.setMembers([own])
  const certificate = (): { readonly key: string; readonly cert: string; readonly ca: string } => {
    const { ca, own: pair } = tls()
    if (pair === undefined) throw new Error('a hub without a certificate')
    return { ca, ...pair }
  }
  let store: HubStore | undefined
  const openStore = async (): Promise<HubStore> => (store ??= await HubStore.open(clock, { state: places.state, site }))
  const identify = (der: Uint8Array): Identified => {
    if (store !== undefined) return store.identify(der)
    // Before this hub has the files, it knows no node; other hubs have a certificate of the authority.
    const facts = readNodeCertificate(der)
    return facts?.site === site && facts.isHub && clock.now() < facts.notAfterMs
      ? { node: facts.node, isHub: true }
      : { refused: 'this hub does not know the nodes of the site yet' }
  }
  const { hub } = await openHub(
    {
      ...{ clock, logger },
      identify,
      peer: async (request) => {
        // One that is damaged comes back from the hub that asks here.
        if (store === undefined && existsSync(join(places.state, 'hub', 'authority.pem')))
          await openStore().catch(() => undefined)
        return member.answer(request)
      },
    },
    { ...init.own, tls: certificate() },
  ).catch((cause: unknown) => {
    throw new UserError(`spec.hub.listen of ${places.file}: cannot listen on ${own}: ${messageOf(cause)}`, { cause })
  })
  const act = async (term: number, until: AbortSignal): Promise<void> => {
    const { objects, state, file } = places
    const current = await readSiteFile(file).catch((error: unknown) => {
      // All hubs have the same file: a mistake in it must not end one after the other.
      if (init.started === undefined || !(error instanceof InvalidFileError)) throw error
      const why = messageOf(error)
      logger.warn('the site file is not valid: what this hub started with counts', { reason: 'InvalidValue', why })
      return init.started
    })
    const config = { ...current, objects, state, identity: join(state, 'identity') }
    const nodes = await untilOpen(openStore, deps, until)
    if (nodes === undefined) return
    const api = new FileApi({ clock, logger }, { objects, state, gateways: config.gateways, severalHubs: true })
    try {
      hub.act({
        ...{ api, term, leases: api.leases },
        readSite: () => readFile(file, 'utf8'),
        enrol: (request) => nodes.enrol(request),
        renew: (node, csr) => nodes.renew(node, csr),
        confirm: (changed, late) => member.confirm(changed, late),
      })
      logger.info('the hub of the site is up', { address: own, term })
      await work({ config, api, leases: api.leases }, until)
      await untilAborted(until)
    } finally {
      hub.rest()
      await api.close()
    }
  }
  const member = new HubMember(
    {
      ...{ clock, logger, tree, act },
      save: (term) => terms.save(own, term),
      takePromotion: () => terms.takePromotion(),
      connect: (text) =>
        new HubConnection(
          { clock, logger },
          { addresses: [parseHostPort(text, 'spec.hub.listen')], tls, anyHub: true },
        ),
    },
    { hubs, own, stored },
  )
  status.report('hub', () => ({ ...member.state(), ...hub.state() }))
  const over = new AbortController()
  const until = AbortSignal.any([signal, over.signal])
  const renewing = (async () => {
    while (await unlessAborted(clock.sleep(RENEW_MS, until), until)) hub.renewTls(certificate())
  })()
  try {
    await member.run(signal)
  } finally {
    over.abort()
    await renewing
    await hub.close()
  }
}

/** Another hub gives this one the authority that its disk has lost, once this one acts. Undefined after the signal. */
async function untilOpen(
  open: () => Promise<HubStore>,
  { clock, logger }: Pick<ComponentDeps, 'clock' | 'logger'>,
  signal: AbortSignal,
): Promise<HubStore | undefined> {
  let isReported = false
  for (;;) {
    try {
      return await open()
    } catch (error) {
      if (!isReported)
        logger.warn('the authority cannot be used', { reason: 'StateFileDamaged', why: messageOf(error) })
      isReported = true
    }
    if (!(await unlessAborted(clock.sleep(AUTHORITY_MS, signal), signal))) return undefined
  }
}
