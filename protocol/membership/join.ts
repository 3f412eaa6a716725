/** Joining, for the holder of a token: `sealane join` on a plain site, the agent in a real cluster. */
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

/** The join request that an installer left in the cluster, and where it reads the answer. */
export interface JoinStore {
  /** Undefined while nobody has brought one. */
  token(): Promise<string | undefined>
  /** Made and kept before it is given, the same one until the join is over. */
  key(): Promise<KeyObject>
  /** Takes a token away that nobody needs any more. False where none lies there. */
  dropToken(): Promise<boolean>
  /** Takes the place of what was reported before; undefined: all is well. */
  problem(problem: JoinProblem | undefined): Promise<void>
  /** True while the broker is to be asked what the join changes for other members, and nothing is to be changed. */
  asksFirst(): Promise<boolean>
  /** True while problem() says of this token that it is refused; the installer may take that away again. */
  isRefused(token: string): Promise<boolean>
}

export interface JoinProblem {
  /** A sentence. */
  readonly text: string
  /** Its stable name (model/reasons/). */
  readonly reason?: ReasonCode
  /** The token that will not work, however often it is shown; absent where time may mend it. */
  readonly refused?: string
}

export interface JoinAsk {
  readonly token: JoinToken
  readonly cluster: ClusterId
  /** Kept by the caller before asking: where the answer is lost, the broker takes the token again from the same key. */
  readonly key: KeyObject
  readonly facts: ClusterFacts
  /** Called when the broker is about to be asked; before that, the token is certainly unspent. */
  readonly onAsking?: () => void
}

/**
 * Trades a token for a certificate. Where an operator has to accept first, the caller is to keep the key and to ask
 * again: RefusedError with the reason JoinAwaitsApproval (approval.ts). Throws CertificateError, BrokerUnreachableError, RefusedError, and ProtocolError
 * for an answer that is no member's, or would make of this cluster what it has not stated.
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
    if (problem !== undefined) throw new ProtocolError(`the broker's answer cannot be used: ${problem}`)
    return response
  } finally {
    client.close()
  }
}

/** A person waits for it. */
const LOOK_MS = 5000

/**
 * What a join with this token would bring; changes nothing and does not spend it. Throws what askToJoin throws, after
 * five seconds at most; a broker of an older release refuses the field `csr`.
 */
export async function lookAtJoin(
  { token, cluster, facts }: Omit<JoinAsk, 'key' | 'onAsking'>,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  signal: AbortSignal,
): Promise<JoinLook> {
  const late = new AbortController()
  const cancel = clock.setTimer(LOOK_MS, () =>
    late.abort(new Error(`the broker did not answer in ${LOOK_MS / 1000} s`)),
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

/** What is kept of a broker's yes. */
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

/** When its certificate ends: past that it opens no door, and a token has to make another. */
export function endOfIdentity({ certificate }: MemberIdentity): number {
  return readCertificate(certificate).notAfterMs
}

// Joining a broker whose operator decides who comes in: asking until he has, and taking the question back.

/** Between two questions whether somebody has accepted. */
export const APPROVAL_PACE = { minMs: 1000, maxMs: 15_000 }
/** Past the token's end the broker itself says no; one that is away that long is waited for no more. */
const AWAY_MS = 60_000
/** A person has pressed Ctrl-C. */
const WITHDRAW_MS = 5000

type Deps = { readonly clock: Clock; readonly logger: Logger }

/** Whether a join was neither granted nor refused: an operator of the broker has to accept it. */
export function awaitsApproval(error: unknown): error is RefusedError {
  return error instanceof RefusedError && error.reason === 'JoinAwaitsApproval'
}

/** What somebody at the broker has to do. The fingerprint is that of the key at hand, not what the broker says it is. */
export function approvalText(cluster: ClusterId, key: KeyObject): string {
  const fingerprint = keyFingerprint(publicKeyHash(key))
  return (
    `${cluster} waits for approval by an operator of the broker; the fingerprint of its key is ${fingerprint}; ` +
    `on the broker: sealane cluster accept ${cluster} --fingerprint ${fingerprint}`
  )
}

/** The same refusal, in the words of who joins. */
export function inOwnWords(error: RefusedError, { cluster, key }: Pick<JoinAsk, 'cluster' | 'key'>): RefusedError {
  return new RefusedError(error.reason, error.field, approvalText(cluster, key), error.code)
}

export interface ApprovalWait {
  /** Called once, when it is clear that somebody has to accept. */
  readonly onWaiting: (text: string) => void
  /** Milliseconds to wait; undefined: as long as the token lasts. */
  readonly forMs: number | undefined
}

/**
 * As askToJoin(), and asks again until an operator has accepted; a broker that is away meanwhile is waited for. Throws
 * what askToJoin() throws; RefusedError with the reason JoinAwaitsApproval when the time is over.
 */
export async function joinWhenApproved(
  ask: JoinAsk,
  deps: Deps,
  { onWaiting, forMs }: ApprovalWait,
  signal: AbortSignal,
): Promise<JoinResponse> {
  const { clock } = deps
  const backoff = new Backoff(clock, APPROVAL_PACE)
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

/** Of what waiting may mend. */
function mayPass(error: unknown): boolean {
  if (error instanceof BrokerUnreachableError) return true
  return error instanceof RefusedError && error.reason === 'TooManyAttempts'
}

/**
 * Takes back what waits with this token and this key; the token is free again. Throws what askToJoin() throws, after
 * five seconds at most; RefusedError with the reason WaitingUnknown where nothing waits.
 */
export async function withdrawJoin(
  { token, cluster, key, facts }: Omit<JoinAsk, 'onAsking'>,
  { clock, logger }: Deps,
  signal: AbortSignal,
): Promise<void> {
  const late = new AbortController()
  const cancel = clock.setTimer(WITHDRAW_MS, () =>
    late.abort(new Error(`the broker did not answer in ${WITHDRAW_MS / 1000} s`)),
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
