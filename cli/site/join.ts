/**
 * Joins a site: creates the key and the request here, gets the certificate from the broker, and writes everything
 * before it reports success.
 */
import type { KeyObject } from 'node:crypto'
import { chmod, mkdir, readFile, rm, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { MembershipChanges } from '../../kubeapi/kubeapi.ts'
import { ownCluster } from '../../model/addresses/addresses.ts'
import { likelyRungText } from '../../model/lanes/lanes.ts'
import { type ClusterId, joinedMembership, oneLine, renumberedText } from '../../model/model.ts'
import { type ClusterFacts, type JoinResponse, RefusedError } from '../../protocol/protocol.ts'
import { type JoinToken, createKey, keyFromPem, keyToPem, parseJoinToken } from '../../protocol/identity/identity.ts'
import {
  IdentityFileError,
  type JoinAsk,
  awaitsApproval,
  joinWhenApproved,
  joinedIdentity,
  lookAtJoin,
  readMemberIdentity,
  withdrawJoin,
  folderIdentity,
  writeMemberIdentity,
} from '../../protocol/membership/membership.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError, formatDuration, messageOf, sealaneVersion } from '../../runtime/runtime.ts'
import { createLogger } from '../../runtime/logging/logging.ts'
import { type LookAtJoin, type RenumberingInit, agreeOnRenumbering } from '../cluster/cluster.ts'
import type { OpenSite } from '../context/context.ts'
import { checkSameMember } from './rejoin.ts'

export interface JoinInit {
  readonly token: string
  readonly clusterId: ClusterId
  readonly clock: Clock
  readonly signal: AbortSignal
  /** Prints messages for the user in addition to the result. */
  readonly say: (text: string) => void
  /** How long to wait for an operator's approval, in milliseconds. If undefined, as long as the token is valid. */
  readonly approvalMs?: number | undefined
  /** Asks the user whether other members may be renumbered. Undefined if the user cannot be asked. */
  readonly confirm?: ((question: string) => Promise<boolean>) | undefined
}

export interface Joined {
  readonly cluster: string
  readonly clusterset: string
  readonly globalCIDRs: readonly string[]
}

/**
 * Throws TokenError, RefusedError, CertificateError, BrokerUnreachableError, UserError. A failed join leaves the site
 * as it was. If the broker's answer was lost, or if approval did not come in time, the same command with the same token
 * continues. If the signal aborts while the join waits for approval, the request is withdrawn.
 */
export async function joinClusterset(site: OpenSite, init: JoinInit): Promise<Joined> {
  const { api, config } = site
  const { clusterId, clock, signal } = init
  const token = parseJoinToken(init.token, clock.now())
  await checkNotElsewhere(config.identity, token, init)
  init.say(await likelyReach(site, signal))
  const agreed = init.confirm === undefined || (await agreeOnRenumbering(renumberingOf(site, { ...init, token })))
  if (agreed === 'unknown') {
    throw new UserError('the broker does not report what this join changes for other members', {
      hint: 'try again, or join without this check: --yes',
    })
  }
  const joining = await openJoiningKey(config.identity)
  const response = await askBroker(site, { ...init, token, joining })
  const own = ownCluster(clusterId, factsOf(site), response)
  await api.apply(own, signal)
  const kept = await folderIdentity(config.identity).access()
  const { exposure } = config
  const changes = new MembershipChanges(api)
  await changes.write((before) => joinedMembership(clusterId, response, { exposure, before, kept }), signal)
  const ask = { token, cluster: clusterId, key: joining.key, facts: factsOf(site) }
  await writeMemberIdentity(config.identity, joinedIdentity(ask, response))
  await joining.forget()
  const left = config.podCIDRs.filter((cidr) => !own.spec.podCIDRs.includes(cidr))
  const { notes = [] } = response
  for (const note of notes) init.say(oneLine(note))
  // A broker of an earlier release does not report the reason.
  if (left.length > 0 && notes.length === 0)
    init.say(`reached over IPv4 only: IPv6 of this site (${left.join(', ')}) overlaps another member's`)
  if ((response.renumbered ?? []).length > 0) init.say(renumberedText(response.renumbered ?? [], 'got'))
  return { cluster: clusterId, clusterset: response.clusterset, globalCIDRs: response.globalCIDRs }
}

/** Gateways by the site file, with the addresses of their Nodes. */
async function likelyReach({ api, config }: OpenSite, signal: AbortSignal): Promise<string> {
  const cache = api.cache('Node')
  await cache.whenSynced(signal)
  const nodes = new Map(cache.list().map((node) => [node.metadata.name, node]))
  return likelyRungText(
    config.gateways.map(({ node, publicAddress }) => {
      const addresses = (nodes.get(node)?.status?.addresses ?? []).map(({ address }) => address)
      return { node, publicAddress, addresses }
    }),
  )
}

function renumberingOf(
  site: OpenSite,
  { token, clusterId, clock, confirm, signal, say }: Omit<JoinInit, 'token'> & { token: JoinToken },
): RenumberingInit {
  const look: LookAtJoin = (ask, within) => lookAtJoin(ask, { clock, logger: createLogger('cli', 'warn') }, within)
  return { token, cluster: clusterId, facts: factsOf(site), look, confirm, say: (text) => say(text.trimEnd()), signal }
}

/** A site may join again as the same cluster of the same clusterset, which replaces a lost or damaged identity. */
async function checkNotElsewhere(directory: string, token: JoinToken, { clusterId, say }: JoinInit): Promise<void> {
  const known = await readMemberIdentity(directory).catch((error: unknown) => {
    if (!(error instanceof IdentityFileError)) throw error
    say(`the identity of this site is replaced: ${error.message}`)
    return undefined
  })
  if (known !== undefined) checkSameMember(known, { clusterId, clusterset: token.clusterset })
}

type Asking = Omit<JoinInit, 'token'> & { readonly token: JoinToken; readonly joining: JoiningKey }

async function askBroker(site: OpenSite, init: Asking): Promise<JoinResponse> {
  const { token, joining, clusterId, clock, signal, say, approvalMs } = init
  const progress = { asked: false, waits: false }
  const onAsking = (): void => void (progress.asked = true)
  const ask = { token, cluster: clusterId, key: joining.key, facts: factsOf(site), onAsking }
  const onWaiting = (text: string): void => {
    progress.waits = true
    say(`${text}\nwaiting for approval; Ctrl-C withdraws the request`)
  }
  const deps = { clock, logger: createLogger('cli', 'warn') }
  try {
    return await joinWhenApproved(ask, deps, { onWaiting, forMs: approvalMs }, signal)
  } catch (error) {
    if (signal.aborted && progress.waits) await takeBack(ask, init)
    if (awaitsApproval(error)) throw stillWaits(error, approvalMs)
    // Only in these cases is it certain that the broker has not accepted the request.
    if (!progress.asked || error instanceof RefusedError) await joining.forget()
    throw error
  }
}

/**
 * Withdraws the request. The key stays if the broker may still hold the request or has granted it, so that the same
 * command continues.
 */
async function takeBack(ask: JoinAsk, { joining, clock, say }: Asking): Promise<void> {
  try {
    await withdrawJoin(ask, { clock, logger: createLogger('cli', 'error') }, new AbortController().signal)
    await joining.forget()
    say('the request was withdrawn; the token can be used again')
  } catch (error) {
    const granted = error instanceof RefusedError && error.reason === 'WaitingUnknown'
    const text = granted
      ? 'the broker has answered the request in the meantime: run the same command again for the result'
      : `the request could not be withdrawn (${messageOf(error)}): it waits at the broker until the token expires`
    say(text)
  }
}

function stillWaits({ message }: RefusedError, approvalMs: number | undefined): UserError {
  const time = approvalMs === undefined ? '' : ` after ${formatDuration(approvalMs)}`
  return new UserError(`not approved${time}: ${message}`, {
    hint: 'to keep waiting, run the same command with the same token',
    reason: 'JoinAwaitsApproval',
  })
}

function factsOf({ config }: OpenSite): ClusterFacts {
  const { podCIDRs, serviceCIDRs, labels } = config
  return { podCIDRs, serviceCIDRs, labels, version: sealaneVersion() }
}

// The key of a join in progress, `<identity>/joining.key`. It is written before the broker is asked, so that a
// directory that cannot be written is detected before the token is used. If the broker's answer is lost, the broker
// accepts the used token once more from the same key.

interface JoiningKey {
  readonly key: KeyObject
  /** Removes the file, and the directory if it is empty. */
  forget(): Promise<void>
}

/** Throws UserError, which names the directory, if it cannot be written. */
async function openJoiningKey(directory: string): Promise<JoiningKey> {
  const file = join(directory, 'joining.key')
  const forget = async (): Promise<void> => {
    await rm(file, { force: true })
    await rmdir(directory).catch(() => undefined)
  }
  const before = await readFile(file, 'utf8').then(keyFromPem, () => undefined)
  if (before !== undefined) return { key: before, forget }
  const key = createKey()
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    await chmod(directory, 0o700)
    await rm(file, { force: true })
    await writeFile(file, keyToPem(key), { mode: 0o600, flag: 'wx', flush: true })
  } catch (cause) {
    throw new UserError(`${directory}: cannot be written: ${(cause as Error).message}`, { cause })
  }
  return { key, forget }
}
