/**
 * The Secret with the identity of a cluster, as a join finds it: the identity of an earlier join, and a token for the
 * agent.
 */
import { IDENTITY_SECRET, IDENTITY_SECRET_TYPE, type Marks, partLabels } from '../../install/values/values.ts'
import type { ClusterId } from '../../model/model.ts'
import {
  type MemberIdentity,
  REFUSED_ANNOTATION,
  type SecretAccess,
  endOfIdentity,
  joinProblem,
  secretIdentity,
} from '../../protocol/membership/membership.ts'
import { parseJoinToken } from '../../protocol/identity/identity.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { EarlierInstall } from '../discovery/discovery.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { noToken } from '../broker/broker.ts'
import { leaveToken } from '../installation/installation.ts'
import { secretAccess } from '../../compose/site/site.ts'

/** `marks` are set if the Secret has to be created. */
export function identitySecret(
  admin: ClusterAdmin,
  namespace: string,
  signal: AbortSignal,
  marks?: Marks,
): SecretAccess {
  const labels = { ...marks?.labels, ...partLabels('agent') }
  const { annotations = {} } = marks ?? {}
  const place = { namespace, name: IDENTITY_SECRET, type: IDENTITY_SECRET_TYPE, labels, annotations }
  return secretAccess(admin, place, signal)
}

export interface KnownMembershipInit {
  /** The title of the cluster for messages: `context "c1" of kubeconfig`. */
  readonly title: string
  /** Undefined if the user gives no token. Then a stored token or identity stays. */
  readonly token: string | undefined
  readonly dryRun: boolean
  /** `--context c1`, for the commands that messages recommend. */
  readonly flags: string
  readonly clock: Clock
  readonly say: (text: string) => void
}

/** The facts about an earlier join, and the id of this one. */
export interface EarlierMembership extends Pick<EarlierInstall, 'clusterId'> {
  /** The id that this cluster is to have. */
  readonly wanted: ClusterId
}

/**
 * The identity of an earlier join. Undefined if there is none that is still valid. Throws UserError if this join cannot
 * continue.
 */
export async function knownMembership(
  secret: SecretAccess,
  earlier: EarlierMembership,
  init: KnownMembershipInit,
): Promise<MemberIdentity | undefined> {
  const { title, token, flags, clock, say } = init
  const known = await secretIdentity(secret).read()
  if (known === undefined) {
    await tokenWaits(secret, earlier, init)
    return undefined
  }
  if (known.cluster !== earlier.wanted) {
    throw new UserError(`${title} is already a member, as ${known.cluster}, not as ${earlier.wanted}`, {
      hint: `leave first: sealane leave ${flags}`,
    })
  }
  if (token !== undefined && known.clusterset !== parseJoinToken(token, clock.now()).clusterset) {
    throw new UserError(`${title} is already joined as ${known.cluster} in clusterset ${known.clusterset}`, {
      hint: `leave first: sealane leave ${flags}`,
    })
  }
  const endsAtMs = endOfIdentity(known)
  const ended = `its certificate expired at ${new Date(endsAtMs).toISOString()}`
  const isOver = endsAtMs <= clock.now()
  if (isOver && token !== undefined) {
    joinsAgain(ended, known, init)
    return undefined
  }
  const problem = joinProblem(await secret.read(), '')
  // A problem that kept the agent from leaving says nothing about the identity.
  if (problem !== undefined && problem.reason !== 'LeaveNotReported') {
    joinsAgain(`the broker refuses its identity: ${problem.text}`, known, init)
    return undefined
  }
  if (isOver) say(`${ended}: the agent renews it when it reaches the broker\n`)
  if (token !== undefined) say(`already joined as ${known.cluster}: the token is not used\n`)
  return known
}

/** The identity is no longer valid: a token is needed to create a new one with the same id. */
function joinsAgain(why: string, { cluster }: MemberIdentity, init: KnownMembershipInit): void {
  if (init.token !== undefined) init.say(`joined earlier as ${cluster}; ${why}\n`)
  else if (!init.dryRun) throw needsToken(`${init.title} has joined as ${cluster}, and ${why}`, cluster, init)
}

/** A broker from which this member can get a new identity with the rights of the broker's operator. */
export interface RekeyingBroker {
  /** A client is connected with the member's current identity: a copy of the cluster, or the agent of this one. */
  readonly inContact: boolean
  /** Revokes the member's current identity, and returns a token for a new one. */
  rekey(): Promise<string>
}

export interface RekeyInit extends Pick<KnownMembershipInit, 'title' | 'token' | 'dryRun' | 'clock'> {
  /**
   * Looks up the broker and changes nothing. Undefined if there is no broker to ask. It returns undefined if the broker
   * does not know the member.
   */
  readonly rekey?: ((cluster: string) => Promise<RekeyingBroker | undefined>) | undefined
  readonly force: boolean
}

/**
 * The broker that gives a new identity to a member that has lost its own and has no stored token that may still work.
 * Undefined otherwise. Throws UserError if a client is connected with the lost identity, except with `force`.
 */
export async function rekeyingBroker(
  secret: SecretAccess,
  { clusterId }: Pick<EarlierInstall, 'clusterId'>,
  { title, token, dryRun, clock, rekey, force }: RekeyInit,
): Promise<RekeyingBroker | undefined> {
  if (token !== undefined || dryRun || rekey === undefined || clusterId === undefined) return undefined
  const store = secretIdentity(secret)
  if ((await store.read()) !== undefined) return undefined
  const waiting = await store.token()
  // The note of a refused token counts whatever the settings were, because storing another token removes it.
  const isRefused = REFUSED_ANNOTATION in ((await secret.read())?.annotations ?? {})
  if (waiting !== undefined && isOpen(waiting, clock.now()) && !isRefused) return undefined
  const broker = await rekey(clusterId)
  if (broker?.inContact !== true || force) return broker
  throw new UserError(
    `${title} joined earlier as ${clusterId}, but ${secret.place} has no identity; ${clusterId} is in contact with its broker: another cluster has the identity, or an agent of this one still has it`,
    { hint: 'wait until it is silent, or revoke that identity with --force' },
  )
}

function isOpen(token: string, nowMs: number): boolean {
  try {
    parseJoinToken(token, nowMs)
    return true
  } catch {
    return false
  }
}

/** If the user gives no token, one has to be stored for the agent. Throws UserError if there is none. */
async function tokenWaits(
  secret: SecretAccess,
  { clusterId }: EarlierMembership,
  init: KnownMembershipInit,
): Promise<void> {
  if (init.token !== undefined || init.dryRun) return
  if ((await secretIdentity(secret).token()) !== undefined) return
  if (clusterId === undefined) throw noToken()
  throw needsToken(
    `${init.title} joined earlier as ${clusterId}, but ${secret.place} has no identity`,
    clusterId,
    init,
    `; or, with the rights of the broker's operator: sealane join ${init.flags} --broker-context CONTEXT`,
  )
}

function needsToken(problem: string, cluster: string, { flags }: KnownMembershipInit, otherwise = ''): UserError {
  const made = `sealane token create --cluster-id ${cluster}; then: sealane join ${flags} --token-file FILE`
  return new UserError(`${problem}: a new token for this id is needed`, {
    hint: `on the broker: ${made}${otherwise}`,
  })
}

/**
 * Stores a token for the agent if there is no valid identity. Removes an identity that the broker refuses, because the
 * agent would use it otherwise.
 */
export async function storeToken(
  secret: SecretAccess,
  { known, clock, asksFirst }: StoreTokenInit,
  token: string,
): Promise<void> {
  if (known !== undefined) return
  const stale = await secretIdentity(secret).read()
  await leaveToken(secret, token, asksFirst)
  // The agent itself detects an expired identity, and continues as far as it can until the token has produced a new
  // one.
  if (stale !== undefined && endOfIdentity(stale) > clock.now()) await secretIdentity(secret).dropIdentity()
}

export interface StoreTokenInit {
  readonly known: MemberIdentity | undefined
  readonly clock: Clock
  /** See ASK_FIRST_ANNOTATION. */
  readonly asksFirst: boolean
}

/** An agent checks its identity every few seconds, so by then it has restored the Secret. */
const BACK_MS = 15_000

/**
 * Creates an empty Secret if it was deleted while an agent runs. The agent still has the identity in memory and may
 * write it into an existing Secret, but only an administrator may create one.
 */
export async function offerSecret(
  secret: SecretAccess,
  { clock, signal, say }: { readonly clock: Clock; readonly signal: AbortSignal; readonly say: (text: string) => void },
): Promise<void> {
  if ((await secret.read()) !== undefined) return
  await secret.change({})
  say(`${secret.place} was missing: an empty one was created for the agent\n`)
  const end = clock.monotonic() + BACK_MS
  while ((await secretIdentity(secret).read()) === undefined && clock.monotonic() < end) await clock.sleep(500, signal)
}
