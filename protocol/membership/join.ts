/** Joins a clusterset with a token, for `sealane join` on a site and for the agent in a Kubernetes cluster. */
import type { KeyObject } from 'node:crypto'
import { ownCluster, ownClusterProblem, rangeProblem } from '../../model/addresses/addresses.ts'
import type { ClusterId } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { Backoff, type Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import {
  BrokerUnreachableError,
  type ClusterFacts,
  type JoinLook,
  type JoinResponse,
  ProtocolError,
  RefusedError,
} from '../protocol.ts'
import {
  type JoinToken,
  certificateProblem,
  createCsr,
  keyFingerprint,
  publicKeyHash,
  readCertificate,
} from '../identity/identity.ts'
import { connectForJoin } from '../transport/transport.ts'
import type { MemberIdentity } from './member-files.ts'

/** The join request that an installer has left in the cluster. The agent reports the result in the same place. */
export interface JoinStore {
  /** Undefined if the installer has not stored a token. */
  token(): Promise<string | undefined>
  /** Returns the key for the join. It is stored before it is returned, and stays the same until the join is over. */
  key(): Promise<KeyObject>
  /** Removes a token that is no longer needed. Returns false if there is none. */
  dropToken(): Promise<boolean>
  /** Replaces the reported problem; undefined removes it. */
  problem(problem: JoinProblem | undefined): Promise<void>
  /** True if the agent must ask the broker first what the join changes for other members, and must not join yet. */
  asksFirst(): Promise<boolean>
  /** True while problem() has marked this token as refused. The installer may remove the mark. */
  isRefused(token: string): Promise<boolean>
}

export interface JoinProblem {
  /** One sentence for users. */
  readonly text: string
  /** Reason code (model/reasons/). */
  readonly reason?: ReasonCode
  /** The token that will not work however often it is used. Absent if a retry may succeed. */
  readonly refused?: string
}

export interface JoinAsk {
  readonly token: JoinToken
  readonly cluster: ClusterId
  /**
   * The caller stores the key before the request. If the answer is lost, the broker accepts the token from the same key
   * again.
   */
  readonly key: KeyObject
  readonly facts: ClusterFacts
  /** Called immediately before the request. Until then the token is certainly unused. */
  readonly onAsking?: () => void
}

/**
 * Exchanges a token for a certificate. Throws CertificateError, BrokerUnreachableError, or RefusedError. If an operator
 * must approve first, the reason of the RefusedError is JoinAwaitsApproval, and the caller keeps the key and retries.
 * Throws ProtocolError if the answer is not valid for this member, or contradicts the facts that it stated.
 */
export async function askToJoin(
  { token, cluster, key, facts, onAsking }: JoinAsk,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  signal: AbortSignal,
): Promise<JoinResponse> {
  const client = await connectForJoin({ token, clock, logger }, signal)
  try {
    const request = { secret: token.secret(), cluster, csr: await createCsr(key), facts, waits: true }
    onAsking?.()
    const response = await client.join({ ...request, nowMs: clock.now() }, signal)
    const problem = answerProblem({ cluster, key, facts }, response, clock.now())
    if (problem !== undefined) throw new ProtocolError(`the answer of the broker is not valid: ${problem}`)
    return response
  } finally {
    client.close()
  }
}

/** A user waits for the answer. */
const LOOK_MS = 5000

/**
 * Previews a join with this token. Changes nothing and does not use up the token. Throws as askToJoin() does, after
 * five seconds at most. A broker of an older release refuses the field `csr`.
 */
export async function lookAtJoin(
  { token, cluster, facts }: Omit<JoinAsk, 'key' | 'onAsking'>,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  signal: AbortSignal,
): Promise<JoinLook> {
  const late = new AbortController()
  const cancel = clock.setTimer(LOOK_MS, () =>
    late.abort(new Error(`the broker did not answer within ${LOOK_MS / 1000} s`)),
  )
  const limited = AbortSignal.any([signal, late.signal])
  try {
    const client = await connectForJoin({ token, clock, logger }, limited)
    try {
      return await client.lookAtJoin({ secret: token.secret(), cluster, facts, nowMs: clock.now() }, limited)
    } finally {
      client.close()
    }
  } finally {
    cancel()
  }
}

function answerProblem(
  { cluster, key, facts }: Pick<JoinAsk, 'cluster' | 'key' | 'facts'>,
  response: JoinResponse,
  nowMs: number,
): string | undefined {
  const { clusterset, globalRange, clustersetIpRange } = response
  const own = { id: cluster, stated: facts, local: undefined, globalRange }
  return (
    certificateProblem({ cluster, clusterset, key }, response, nowMs) ??
    rangeProblem('globalRange', globalRange, facts) ??
    rangeProblem('clustersetIpRange', clustersetIpRange, facts) ??
    ownClusterProblem(ownCluster(cluster, facts, response).spec, own)
  )
}

/** Builds the identity to store from the broker's answer. */
export function joinedIdentity({ token, cluster, key }: JoinAsk, response: JoinResponse): MemberIdentity {
  return {
    cluster,
    clusterset: response.clusterset,
    brokerAddresses: token.addresses,
    observedAddress: response.observedAddress,
    observedCounts: response.observedCounts,
    ranges: { globalRange: response.globalRange, clustersetIpRange: response.clustersetIpRange },
    key,
    certificate: response.certificate,
    caBundle: response.caBundle,
  }
}

/** Returns when the certificate expires. After that the broker only renews it, within its grace time. */
export function endOfIdentity({ certificate }: MemberIdentity): number {
  return readCertificate(certificate).notAfterMs
}

// Joins a broker whose operator approves joins: retries until approval, and withdraws requests.

/** Delays between two attempts while the join waits for approval. */
export const APPROVAL_RETRY = { minMs: 1000, maxMs: 15_000 }
/**
 * Time that an unreachable broker is waited for after the token has expired. A reachable broker refuses the token then.
 */
const AWAY_MS = 60_000
/** Timeout of a withdrawal, for example after Ctrl-C. */
const WITHDRAW_MS = 5000

type Deps = { readonly clock: Clock; readonly logger: Logger }

/** Returns whether the join waits for approval by an operator of the broker. */
export function awaitsApproval(error: unknown): error is RefusedError {
  return error instanceof RefusedError && error.reason === 'JoinAwaitsApproval'
}

/**
 * Tells the user what an operator of the broker must do. The fingerprint is computed from the local key and not taken
 * from the broker.
 */
export function approvalText(cluster: ClusterId, key: KeyObject): string {
  const fingerprint = keyFingerprint(publicKeyHash(key))
  return (
    `${cluster} waits for approval by an operator of the broker. The fingerprint of its key is ${fingerprint}. ` +
    `On the broker, run: sealane cluster accept ${cluster} --fingerprint ${fingerprint}`
  )
}

/** Returns the same refusal with the text of approvalText(). */
export function inOwnWords(error: RefusedError, { cluster, key }: Pick<JoinAsk, 'cluster' | 'key'>): RefusedError {
  return new RefusedError(error.reason, error.field, approvalText(cluster, key), error.code)
}

export interface ApprovalWait {
  /** Called once, when the join is known to need approval. */
  readonly onWaiting: (text: string) => void
  /** Longest wait in milliseconds. Undefined to wait until the token expires. */
  readonly forMs: number | undefined
}

/**
 * Joins as askToJoin() does, and retries until an operator has approved, also while the broker is unreachable. Throws
 * as askToJoin() does. After the longest wait, throws the last error, such as RefusedError with the reason
 * JoinAwaitsApproval.
 */
export async function joinWhenApproved(
  ask: JoinAsk,
  deps: Deps,
  { onWaiting, forMs }: ApprovalWait,
  signal: AbortSignal,
): Promise<JoinResponse> {
  const { clock } = deps
  const backoff = new Backoff(clock, APPROVAL_RETRY)
  const untilTokenEnds = ask.token.expiresAtMs - clock.now() + AWAY_MS
  const endMs = clock.monotonic() + (forMs ?? untilTokenEnds)
  let isWaiting = false
  for (;;) {
    let failure: unknown
    try {
      return await askToJoin(ask, deps, signal)
    } catch (error) {
      signal.throwIfAborted()
      failure = error
    }
    if (awaitsApproval(failure)) {
      failure = inOwnWords(failure, ask)
      if (!isWaiting) onWaiting((failure as RefusedError).message)
      isWaiting = true
    } else if (!isWaiting || !mayPass(failure)) throw failure
    const leftMs = endMs - clock.monotonic()
    if (leftMs <= 0) throw failure
    await clock.sleep(Math.min(leftMs, backoff.next()), signal)
  }
}

/** Returns whether the failure may pass with time. */
function mayPass(error: unknown): boolean {
  if (error instanceof BrokerUnreachableError) return true
  return error instanceof RefusedError && error.reason === 'TooManyAttempts'
}

/**
 * Withdraws the pending approval for this token and key; the token can be used again. Throws as askToJoin() does, after
 * five seconds at most, and RefusedError with the reason WaitingUnknown if nothing is pending.
 */
export async function withdrawJoin(
  { token, cluster, key, facts }: Omit<JoinAsk, 'onAsking'>,
  { clock, logger }: Deps,
  signal: AbortSignal,
): Promise<void> {
  const late = new AbortController()
  const cancel = clock.setTimer(WITHDRAW_MS, () =>
    late.abort(new Error(`the broker did not answer within ${WITHDRAW_MS / 1000} s`)),
  )
  const limited = AbortSignal.any([signal, late.signal])
  try {
    const client = await connectForJoin({ token, clock, logger }, limited)
    try {
      const request = { secret: token.secret(), cluster, csr: await createCsr(key), facts, nowMs: clock.now() }
      await client.withdrawJoin(request, limited)
    } finally {
      client.close()
    }
  } finally {
    cancel()
  }
}
