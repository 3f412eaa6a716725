/** Invites machines as nodes of a plain site whose folder they do not see, and revokes them. */
import { formatNodeFile } from '../../kubeapi/files/files.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError, formatDuration } from '../../runtime/runtime.ts'
import { type CommandContext, type OpenSite, withSite } from '../context/context.ts'

interface InviteInit {
  /** The path of the site file. */
  readonly site: string
  readonly ttl: number
  /** The file to write; `-` for standard output. */
  readonly out?: string
  /** The machine becomes one of several hubs. */
  readonly hub?: boolean
}

/** Throws UserError if the site has no hub or no such Node, or if the file exists already. */
export async function inviteNode(node: string, init: InviteInit, { signal, output }: CommandContext): Promise<void> {
  await withSite(init.site, { signal, output }, async (site) => {
    const { config, api } = site
    if (config.hub.listen.length === 0) {
      throw new UserError(
        `spec.hub.listen of ${config.file}: expected the address:port at which nodes reach this machine`,
        {
          hint: 'for example, in spec: hub: { listen: [192.0.2.1:9474] }; then restart sealane up on this machine',
        },
      )
    }
    const nodes = api.cache('Node')
    await nodes.whenSynced(signal)
    if (nodes.list().length > 0 && nodes.get(node) === undefined) {
      const names = nodes.list().map(({ metadata }) => metadata.name)
      throw new UserError(
        `node ${JSON.stringify(node)}: this site has no such Node: expected one of ${names.join(', ')}`,
      )
    }
    const store = await openStore(site)
    const make = async (): Promise<{ readonly text: string }> => {
      const token = await store.invite(node, init.ttl, init.hub)
      const { certificateAuthority } = store
      const hubs = config.hub.listen
      return { text: formatNodeFile({ node, site: config.name, hubs, token, certificateAuthority }).trimEnd() }
    }
    const out = init.out ?? `${node}.yaml`
    if (out === '-') {
      output.answer(`${(await make()).text}\n`)
      return
    }
    // The file is opened first: an invitation ends the earlier one of the node.
    const { writeTokenFile } = await import('../broker/token.ts')
    await writeTokenFile(out, make)
    output.answer(
      `${out} makes one machine node ${node}, within ${formatDuration(init.ttl)}. Copy it there and run:\n` +
        `  sealane up --site ${out} --node ${node}\n`,
    )
  })
}

/** Throws UserError if the node was never invited. */
export async function revokeNode(
  node: string,
  { site: file }: Pick<InviteInit, 'site'>,
  { signal, output }: CommandContext,
): Promise<void> {
  await withSite(file, { signal, output }, async (site) => {
    const store = await openStore(site)
    if (!(await store.revoke(node))) {
      const known = store.nodes()
      const expected = known.length === 0 ? 'no node has a certificate' : `expected one of ${known.join(', ')}`
      throw new UserError(`node ${JSON.stringify(node)}: ${expected}`)
    }
    output.answer(`the hub refuses node ${node} from now on\n`)
  })
}

/**
 * Makes the hub of this machine the one that acts, where the other one of two is lost. Throws UserError if this machine
 * is no hub, or if it does not act within ten seconds.
 */
export async function promoteHub(
  { site: file }: Pick<InviteInit, 'site'>,
  { signal, output }: CommandContext,
): Promise<void> {
  await withSite(file, { signal, output, wantsHub: true, anyNode: true }, async ({ config }) => {
    const { TermStore } = await import('../../compose/hub/hub-tree.ts')
    const terms = new TermStore(config.state)
    if (terms.acts() === undefined) {
      throw new UserError(`${config.file}: this machine is not one of several hubs`, {
        hint: 'name it in spec.hub.listen and invite it: sealane site invite NODE --hub',
      })
    }
    if (terms.acts() === true) {
      output.answer('the hub of this machine acts already\n')
      return
    }
    await terms.promote()
    const clock = new SystemClock()
    const endMs = clock.monotonic() + PROMOTION_MS
    // One that stayed would count at a later start, when the other hub may be the newer one.
    using _left = { [Symbol.dispose]: () => void terms.takePromotion() }
    while (terms.acts() !== true) {
      if (clock.monotonic() >= endMs) {
        throw new UserError('the hub of this machine does not act', {
          hint: 'only one of two hubs is promoted, while sealane up runs; of three and more, a majority elects one',
        })
      }
      await clock.sleep(200, signal)
    }
    output.answer('the hub of this machine acts from now on\n')
  })
}

const PROMOTION_MS = 10_000

async function openStore({ config }: OpenSite) {
  if (config.kubernetes !== undefined) {
    throw new UserError(`${config.file}: a site with spec.kubernetes has no hub: its nodes speak with the API server`)
  }
  const { HubStore } = await import('../../compose/hub/hub-store.ts')
  return HubStore.open(new SystemClock(), { state: config.state, site: config.name })
}
