/**
 * Joins a Kubernetes cluster from within: the agent generates the key, which never leaves the cluster. The installer
 * only provides a token. Until the join succeeds, the agent reports the cause to the waiting `sealane join`.
 */
import type { ClusterApi, MembershipChanges } from '../../kubeapi/kubeapi.ts'
import {
  type ClusterId,
  MEMBERSHIP_NAME,
  brokenConnectionsText,
  joinedMembership,
  renumberedText,
} from '../../model/model.ts'
import {
  type ClusterFacts,
  type JoinLook,
  type JoinResponse,
  RefusedError,
  type Renumbered,
} from '../../protocol/protocol.ts'
import {
  APPROVAL_RETRY,
  type IdentityStore,
  type JoinAsk,
  type JoinStore,
  askToJoin,
  awaitsApproval,
  endOfIdentity,
  inOwnWords,
  joinedIdentity,
  lookAtJoin,
} from '../../protocol/membership/membership.ts'
import { TokenError, parseJoinToken } from '../../protocol/identity/identity.ts'
import type { Exposure } from '../../model/access/access.ts'
import { ownCluster } from '../../model/addresses/addresses.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { Backoff } from '../../reconcile/reconcile.ts'
import { type ComponentDeps, errorOf } from '../../runtime/runtime.ts'
import { reasonField } from '../../protocol/transport/transport.ts'

export interface JoiningDeps extends ComponentDeps {
  readonly api: ClusterApi
  /** The one of this process. */
  readonly changes: MembershipChanges
}

export interface JoinWithTokenInit {
  readonly cluster: ClusterId
  readonly facts: ClusterFacts
  readonly identity: IdentityStore
  readonly store: JoinStore
  /** What other members may call, as the configuration states it. If undefined, a member keeps what it has. */
  readonly exposure?: Exposure | undefined
}

/** After a refusal, the token is checked this often, since a user may store a new one. */
const LOOK_MS = 1000
/** The identity is checked this often: the clock may be changed, and the identity renewed or removed. */
const LOOK_AT_IDENTITY_MS = 5000
/** The pause before another try if the broker or the API server does not answer. */
const AWAY_MS = 5000
/** The pause between tries while the broker's operator has not approved this cluster. */
const UNAPPROVED_MS = APPROVAL_RETRY.maxMs

/**
 * Resolves once this cluster has an identity, expired or not. Rejects only with the signal's reason, or if the identity
 * or the JoinStore cannot be read or written.
 */
export async function joinWithToken(deps: JoiningDeps, init: JoinWithTokenInit, signal: AbortSignal): Promise<void> {
  const { identity, store } = init
  const backoff = new Backoff(deps.clock, { minMs: 500, maxMs: 10_000 })
  const approvalBackoff = new Backoff(deps.clock, APPROVAL_RETRY)
  let state: string | undefined = 'joining the clusterset'
  deps.status.readiness('join', () => state)
  let refused: string | undefined
  const attempt = new JoinAttempt(deps, init, 'join failed')
  let known = await identity.read()
  for (; known === undefined; known = await identity.read()) {
    signal.throwIfAborted()
    const token = await store.token()
    if (token === undefined || (token === refused && (await store.isRefused(token)))) {
      if (token === undefined) state = `waiting for a join token in ${identity.place}`
      await deps.clock.sleep(LOOK_MS, signal)
      continue
    }
    const failure = await attempt.join(token, signal)
    if (failure === undefined) break
    state = failure.message
    refused = isFinal(failure) ? token : undefined
    await attempt.report(failure, token)
    const pause = awaitsApproval(failure) ? approvalBackoff : backoff
    if (refused === undefined) await deps.clock.sleep(pause.next(), signal)
  }
  state = undefined
  attempt.forget()
  // With an expired identity, the agent runs as far as it can, and rejoinWhenEnded() needs the token.
  if (known === undefined || endOfIdentity(known) > deps.clock.now()) await dropToken(deps, store, signal)
}

/** The cluster has joined again, so a process that uses the earlier identity must restart. */
export class JoinedAgainError extends Error {
  constructor(cluster: ClusterId) {
    super(`cluster ${cluster} has joined again: the agent restarts with the new identity`)
    this.name = 'JoinedAgainError'
  }
}

/**
 * Runs beside the agent, until the signal or until the cluster leaves. Once the certificate has expired, a token gives
 * the same cluster id a new identity. Until a token is stored, nothing changes. If another process has removed the
 * identity and stored a token, the cluster joins with it. Throws JoinedAgainError after that.
 */
export async function rejoinWhenEnded(deps: JoiningDeps, init: JoinWithTokenInit, signal: AbortSignal): Promise<void> {
  const { clock, logger } = deps
  const attempt = new JoinAttempt(deps, init, 'joining again failed')
  let reported: string | undefined
  const onFailure = (error: unknown): number => {
    if (error instanceof JoinedAgainError) throw error
    const why = String(error)
    if (!signal.aborted && why !== reported) {
      logger.warn('cannot join again with the new token; retrying', { reason: 'RoundFailed', why })
    }
    reported = why
    return AWAY_MS
  }
  while (!signal.aborted) {
    const waitMs = await rejoin(deps, init, attempt, signal).catch(onFailure)
    if (waitMs === undefined) return
    await clock.sleep(waitMs, signal).catch(() => undefined)
  }
}

/** Gives the milliseconds until the next check. Undefined if this cluster has left. */
async function rejoin(
  deps: JoiningDeps,
  init: JoinWithTokenInit,
  attempt: JoinAttempt,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { clock } = deps
  const { identity, store } = init
  const known = await identity.read()
  if (known === undefined && hasLeft(deps.api)) return undefined
  const leftMs = known === undefined ? 0 : endOfIdentity(known) - clock.now()
  if (leftMs > 0) attempt.forget()
  if (leftMs > 0) return Math.min(leftMs, LOOK_AT_IDENTITY_MS)
  const token = await store.token()
  if (token === undefined || (await store.isRefused(token))) return LOOK_MS
  const failure = await attempt.join(token, signal)
  if (failure === undefined && known === undefined) throw new JoinedAgainError(init.cluster)
  if (failure === undefined) return LOOK_MS
  await attempt.report(failure, token)
  if (awaitsApproval(failure)) return UNAPPROVED_MS
  return isFinal(failure) ? LOOK_MS : AWAY_MS
}

/** Whether the cluster is leaving or is no member. A leaving cluster sets the phase before it removes the identity. */
export function hasLeft(api: ClusterApi): boolean {
  return api.cache('Membership').synced && !isJoined(api)
}

function isJoined(api: ClusterApi): boolean {
  return api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.phase === 'joined'
}

/** Removes a token that was stored during the join or left unused: it may still be valid for another cluster. */
async function dropToken({ logger }: ComponentDeps, store: JoinStore, signal: AbortSignal): Promise<void> {
  try {
    if (await store.dropToken()) logger.info('this cluster has joined: the stored join token is removed')
  } catch (error) {
    signal.throwIfAborted()
    logger.warn('cannot remove a join token that is no longer needed', {
      reason: 'TokenNotRemoved',
      why: String(error),
    })
  }
}

const MAX_NAMED = 10

function reportRenumbered(
  { api, logger }: Pick<ComponentDeps, 'logger'> & { readonly api: ClusterApi },
  renumbered: readonly Renumbered[],
): void {
  if (renumbered.length === 0) return
  const listed = renumbered.slice(0, MAX_NAMED)
  const named = listed.map((one) => `${one.cluster} (${one.globalCIDRs.join(', ')})`)
  const more = renumbered.length > MAX_NAMED ? ` and ${renumbered.length - MAX_NAMED} more` : ''
  const broken = brokenConnectionsText(listed, 'broke')
  const note = `addresses of this cluster overlap those of other members, which now have global addresses: ${named.join(', ')}${more}. ${broken}`
  logger.warn('other members have global addresses because this cluster joined', {
    reason: 'MembersRenumbered',
    members: `${named.join(', ')}${more}`,
    why: broken,
  })
  const regarding = { kind: 'Membership', name: MEMBERSHIP_NAME } as const
  api.report({ regarding, type: 'Warning', reason: 'MembersRenumbered', note })
}

/**
 * Whether another try with this token is useless, since the broker refused it. An unreachable broker may come back, a
 * rate limit ends, and an operator may still approve the join.
 */
function isFinal(failure: Error): boolean {
  if (failure instanceof RefusedError) return !PASSING.includes(failure.reason)
  return failure instanceof TokenError
}

const PASSING: readonly ReasonCode[] = ['TooManyAttempts', 'JoinAwaitsAgreement', 'JoinAwaitsApproval', 'WaitingLimit']

/** Tries to join with the stored token, and reports why it fails. */
class JoinAttempt {
  readonly #deps: JoiningDeps
  readonly #init: JoinWithTokenInit
  readonly #message: string
  /** The token that waits for approval. Its expiry is left to the broker to check. */
  #waiting: string | undefined
  #logged: string | undefined
  /** Why the broker refused the last try. */
  #refusedFor: string | undefined

  constructor(deps: JoiningDeps, init: JoinWithTokenInit, message: string) {
    this.#deps = deps
    this.#init = init
    this.#message = message
    deps.status.report('joinRefused', () => this.#refusedFor)
  }

  /** The cluster has a valid identity, so the reason for earlier refusals is dropped. */
  forget(): void {
    this.#refusedFor = undefined
  }

  /** Undefined if the cluster has joined. */
  async join(token: string, signal: AbortSignal): Promise<Error | undefined> {
    const nowMs = token === this.#waiting ? 0 : this.#deps.clock.now()
    const failure = await tryToJoin(this.#deps, this.#init, { text: token, nowMs }, signal)
    if (awaitsApproval(failure)) this.#waiting = token
    this.#refusedFor = failure === undefined ? undefined : reasonField(failure).reason
    return failure
  }

  /**
   * Logs once while an operator's approval is pending: it may take a day, and the broker is asked four times a minute.
   */
  async report(failure: Error, token: string): Promise<void> {
    const { message } = failure
    const isRefused = isFinal(failure)
    const fields = { reason: reasonField(failure).reason ?? 'NotJoined', why: message, refused: isRefused } as const
    if (!awaitsApproval(failure) || this.#logged !== message) this.#deps.logger.warn(this.#message, fields)
    this.#logged = message
    const refused = isRefused ? { refused: token } : {}
    await this.#init.store.problem({ text: message, ...reasonField(failure), ...refused })
  }
}

/**
 * Requires an agreement if the join would renumber other members. Throws RefusedError (JoinAwaitsAgreement), and the
 * errors of lookAtJoin(), except if a broker of an earlier release does not support that request.
 */
async function requireNobodyRenumbered(deps: ComponentDeps, ask: JoinAsk, signal: AbortSignal): Promise<void> {
  let found: JoinLook
  try {
    found = await lookAtJoin(ask, deps, signal)
  } catch (error) {
    if (error instanceof RefusedError && error.field === 'csr') return
    // The operator sees who is renumbered and approves it.
    if (awaitsApproval(error)) return
    throw error
  }
  if (found.renumbered.length === 0) return
  throw new RefusedError('JoinAwaitsAgreement', 'facts', renumberedText(found.renumbered, 'get'))
}

async function tryToJoin(
  deps: JoiningDeps,
  init: JoinWithTokenInit,
  { text, nowMs }: { readonly text: string; readonly nowMs: number },
  signal: AbortSignal,
): Promise<Error | undefined> {
  let ask: JoinAsk | undefined
  let response: JoinResponse
  try {
    const token = parseJoinToken(text.trim(), nowMs)
    ask = { token, cluster: init.cluster, key: await init.store.key(), facts: init.facts }
    if (await init.store.asksFirst()) await requireNobodyRenumbered(deps, ask, signal)
    response = await askToJoin(ask, deps, signal)
  } catch (error) {
    signal.throwIfAborted()
    return awaitsApproval(error) && ask !== undefined ? inOwnWords(error, ask) : errorOf(error)
  }
  // The identity is written last: an interrupted join is repeated with the same key and token.
  await deps.api.apply(ownCluster(init.cluster, init.facts, response), signal)
  const kept = await init.identity.access()
  const { cluster, exposure } = init
  await deps.changes.write((before) => joinedMembership(cluster, response, { exposure, before, kept }), signal)
  await init.identity.write(joinedIdentity(ask, response))
  deps.logger.info('joined', { cluster: init.cluster, clusterset: response.clusterset })
  for (const note of response.notes ?? []) {
    deps.logger.warn('the broker does not use the addresses as this cluster states them', {
      reason: 'AddressesNotAsStated',
      note,
    })
  }
  reportRenumbered(deps, response.renumbered ?? [])
  return undefined
}
