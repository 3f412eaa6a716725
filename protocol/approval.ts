/** Joining a broker whose operator decides who comes in: asking until he has, and taking the question back. */
import type { KeyObject } from 'node:crypto'
import type { ClusterId } from '../model/ids.ts'
import { Backoff } from '../reconcile/backoff.ts'
import type { Clock } from '../reconcile/clock.ts'
import type { Logger } from '../runtime/logging/logger.ts'
import { type JoinResponse, RefusedError } from './broker-api.ts'
import { BrokerUnreachableError } from './broker-client.ts'
import { keyFingerprint, publicKeyHash } from './identity/keys.ts'
import { createCsr } from './identity/x509.ts'
import { type JoinAsk, askToJoin } from './join.ts'
import { connectForJoin } from './transport/grpc-client.ts'

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
