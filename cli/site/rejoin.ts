/**
 * A second join of a site that is a member. As on a cluster, the token is not used, what is missing is repaired, and
 * the differences between the site file and what the clusterset knows are shown.
 */
import { MembershipChanges } from '../../kubeapi/kubeapi.ts'
import { formatDuration, UserError, sealaneVersion } from '../../runtime/runtime.ts'
import { createLogger } from '../../runtime/logging/logging.ts'
import { type ClusterId, MEMBERSHIP_NAME, keptMembership } from '../../model/model.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { type JoinToken, parseJoinToken } from '../../protocol/identity/identity.ts'
import {
  IdentityFileError,
  type MemberIdentity,
  endOfIdentity,
  folderIdentity,
  lookAtJoin,
  readMemberIdentity,
} from '../../protocol/membership/membership.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { objectDiff } from '../cluster/cluster.ts'
import type { OpenSite } from '../context/context.ts'

export interface RejoinInit {
  /** Undefined if the user gives no token. */
  readonly token: string | undefined
  /** The id of --cluster-id. Undefined for that of the identity. */
  readonly clusterId: ClusterId | undefined
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/** The membership that stays as it is. */
export interface StayingMember {
  readonly cluster: ClusterId
  readonly clusterset: string
  /** What was restored, such as `Membership self`. */
  readonly restored: readonly string[]
  /** The lines of objectDiff(): from what the clusterset knows to what the site file says. */
  readonly differences: readonly string[]
}

/**
 * Repairs a site whose identity is valid. Undefined if the join has to create an identity: there is none, it is
 * damaged or has expired, or the broker accepts the token for a new identity of this very member. Throws UserError if
 * the site is a member under another id or of another clusterset, and TokenError.
 */
export async function stayingMember(site: OpenSite, init: RejoinInit): Promise<StayingMember | undefined> {
  const { clock, say, signal } = init
  const known = await readMemberIdentity(site.config.identity).catch((error: unknown) => {
    if (!(error instanceof IdentityFileError) || init.token === undefined) throw error
    // joinClusterset() reports the damage and replaces the identity.
    return undefined
  })
  if (known === undefined) return undefined
  const token = init.token === undefined ? undefined : parseJoinToken(init.token, 0)
  checkSameMember(known, { clusterId: init.clusterId, clusterset: token?.clusterset })
  const leftMs = endOfIdentity(known) - clock.now()
  if (leftMs <= 0) {
    const why = `its certificate expired ${formatDuration(-leftMs)} ago`
    if (token === undefined) throw needsToken(known, why)
    say(`joined earlier as ${known.cluster}; ${why}`)
    return undefined
  }
  if (token !== undefined && (await isForNewIdentity(site, known, { ...init, token }))) return undefined
  if (token !== undefined) say('the token is not used')
  const restored = await restoreMembership(site, known, signal)
  return {
    cluster: known.cluster,
    clusterset: known.clusterset,
    restored,
    differences: await differences(site, known, signal),
  }
}

/** Throws UserError if the site is a member under another id, or of another clusterset. */
export function checkSameMember(
  known: Pick<MemberIdentity, 'cluster' | 'clusterset'>,
  wanted: { readonly clusterId: string | undefined; readonly clusterset: string | undefined },
): void {
  const { clusterId = known.cluster, clusterset = known.clusterset } = wanted
  if (known.cluster === clusterId && known.clusterset === clusterset) return
  throw new UserError(`this site is already joined as ${known.cluster} in clusterset ${known.clusterset}`, {
    hint: 'leave first: sealane leave',
  })
}

function needsToken({ cluster }: MemberIdentity, why: string): UserError {
  return new UserError(`this site has joined as ${cluster}, and ${why}: a new token for this id is needed`, {
    hint: `on the broker: sealane token create --cluster-id ${cluster}; then: sealane join --token-file FILE`,
  })
}

/** Refusals of a token that leave a valid identity as it is. */
const NOT_FOR_THIS: ReadonlySet<string> = new Set([
  'ClusterIdTaken',
  'TokenUnknown',
  'TokenRevoked',
  'TokenExpired',
  'TokenUsed',
  'TokenForOtherCluster',
])

/**
 * Whether the broker would give this member a new identity for the token, as after `cluster rekey`. An unreachable
 * broker leaves the valid identity as it is. Throws RefusedError for any other refusal, such as of changed ranges.
 */
async function isForNewIdentity(
  { config: { podCIDRs, serviceCIDRs, labels } }: OpenSite,
  { cluster }: MemberIdentity,
  { token, clock, signal }: Omit<RejoinInit, 'token'> & { readonly token: JoinToken },
): Promise<boolean> {
  if (token.expiresAtMs <= clock.now()) return false
  const facts = { podCIDRs, serviceCIDRs, labels, version: sealaneVersion() }
  try {
    await lookAtJoin({ token, cluster, facts }, { clock, logger: createLogger('cli', 'error') }, signal)
    return true
  } catch (error) {
    signal.throwIfAborted()
    if (!(error instanceof RefusedError)) return false
    // An operator decides about this join, or the broker is of an older release: the join itself gets the answer.
    if (error.reason === 'JoinAwaitsApproval' || error.field === 'csr') return true
    if (NOT_FOR_THIS.has(error.reason)) return false
    throw error
  }
}

async function restoreMembership(
  { api, config }: OpenSite,
  known: MemberIdentity,
  signal: AbortSignal,
): Promise<string[]> {
  const access = await folderIdentity(config.identity).access()
  const kept = keptMembership(known, { exposure: config.exposure, kept: access })
  const own = await new MembershipChanges(api).write((latest) => (latest === undefined ? kept : undefined), signal)
  if (own?.spec.phase === 'leaving') {
    throw new UserError(`this site is leaving clusterset ${known.clusterset}`, {
      hint: 'first finish that: sealane leave; then join with a new token',
    })
  }
  return own !== undefined || kept === undefined ? [] : [`Membership ${MEMBERSHIP_NAME}`]
}

/** A missing Cluster is no difference: the agent writes it again. */
async function differences(
  { api, config }: OpenSite,
  { cluster }: MemberIdentity,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const clusters = api.cache('Cluster')
  await clusters.whenSynced(signal)
  const own = clusters.get(cluster)
  if (own === undefined) return []
  const { podCIDRs, serviceCIDRs, labels } = own.spec
  // The clusterset does not carry the IPv6 of a site that overlaps another member's.
  const carried = (stated: readonly string[], known: readonly string[]): readonly string[] =>
    known.some(isIpv6) ? stated : stated.filter((cidr) => !isIpv6(cidr))
  const after = {
    podCIDRs: carried(config.podCIDRs, podCIDRs),
    serviceCIDRs: carried(config.serviceCIDRs, podCIDRs),
    labels: config.labels,
  }
  const head = { apiVersion: own.apiVersion, kind: own.kind, metadata: { name: cluster } }
  return objectDiff({ ...head, spec: { podCIDRs, serviceCIDRs, labels } }, { ...head, spec: after })
}

function isIpv6(cidr: string): boolean {
  return cidr.includes(':')
}

/** The text of a join that changed nothing about the membership. Ends with a newline. */
export function stayingText({ cluster, clusterset, restored, differences: lines }: StayingMember): string {
  const repair = restored.length === 0 ? 'nothing to repair' : `restored ${restored.join(', ')}`
  const head = `this site is already a member of ${clusterset} as ${cluster}: ${repair}\n`
  if (lines.length === 0) return head
  const changes = [`  ~ Cluster ${cluster}\n`, ...lines.map((line) => `      ${line}\n`)].join('')
  return `${head}${changes}the agent reports this to the broker when "sealane up" restarts on a gateway\n`
}
