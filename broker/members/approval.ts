/**
 * Approval of joins by an operator. Where approval is required, a join is put on the list (waiting-joins.ts) and is
 * answered with JoinAwaitsApproval until an operator accepts it. Before that, the broker signs nothing, allocates
 * nothing and reports nothing to other members.
 */
import type { ClusterId } from '../../model/model.ts'
import { type JoinRequest, RefusedError } from '../../protocol/protocol.ts'
import { CsrError, csrKeyHash, keyFingerprint } from '../../protocol/identity/identity.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { quote } from '../records/records.ts'
import {
  type AuditActor,
  type RecordLog,
  type TokenRow,
  type Transaction,
  type WaitingRow,
  timeText,
} from '../store/store.ts'
import { type Audit, tokenSource } from '../audit/audit.ts'
import { JoinGate, checkToken } from './join-tokens.ts'
import type { BrokerMetrics } from '../config/config.ts'
import {
  MAX_RENUMBERS,
  type WaitingAnswer,
  askForApproval,
  isAcceptedAs,
  pruneWaiting,
  waitingDetails,
  waitingJoin,
  waitingKey,
  withdrawJoin,
} from './waiting-joins.ts'

export interface ApprovalDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'joins'>
  readonly audit: Audit
}

/** A request to join and the address that it came from. */
export interface JoinCall {
  readonly cluster: ClusterId
  readonly request: JoinRequest
  readonly address: string
  /** Start of the request on the monotonic clock. */
  readonly startedMs: number
}

interface HeldToken {
  readonly id: string
  readonly row: TokenRow
  readonly repeated: boolean
}

export interface ApprovalAsk {
  /** Throws RefusedError if the token has been shown too often. */
  readonly limit: () => void
  /**
   * The members that this join would give global addresses. Throws RefusedError if the join cannot be granted anyway.
   */
  readonly renumbered: (keyHash: string) => Promise<readonly string[]>
}

/** `free`: the join needs no approval. */
type Answer = WaitingAnswer | { readonly t: 'free' }

export class Approval {
  readonly #deps: ApprovalDeps
  readonly #ofAll: boolean
  /** Limits how often a key asks whether its join is approved, by token and key. */
  readonly #gate: JoinGate

  /** `ofAll`: every join needs approval. Otherwise only joins whose token requires it. */
  constructor(deps: ApprovalDeps, ofAll: boolean) {
    this.#deps = deps
    this.#ofAll = ofAll
    this.#gate = new JoinGate(deps.clock, () => 'a caller asked too often whether its join is approved')
  }

  /** Whether joins with this token need the approval of an operator. */
  isNeeded({ approve }: Pick<TokenRow, 'approve'>): boolean {
    return this.#ofAll || approve === true
  }

  /**
   * Resolves when the join may proceed: true if an operator has accepted this key, false if the join needs no approval.
   * Throws RefusedError; the reason is JoinAwaitsApproval as long as no operator has answered.
   */
  async require(call: JoinCall, { limit, renumbered }: ApprovalAsk): Promise<boolean> {
    const { log, clock } = this.#deps
    const { cluster, request } = call
    const bearer = { cluster, nowMs: clock.now() }
    const token = checkToken(log, request.secret, bearer)
    if (!this.isNeeded(token.row)) return false
    const keyHash = await hashOf(request)
    const known = waitingJoin(log, cluster, token.id, bearer.nowMs)
    // A caller that shows the token with another key must not slow down the caller that waits with it.
    if (known?.keyHash === keyHash) this.#limit(`${token.id}/${keyHash}`)
    else limit()
    if (checkToken(log, request.secret, { ...bearer, keyHash }).repeated) return false
    if (request.waits !== true) throw cannotWait()
    const renumbers = known === undefined ? (await renumbered(keyHash)).slice(0, MAX_RENUMBERS) : []
    const answer = await log.transact((tx) => this.#ask(tx, call, { keyHash, renumbers }))
    if (answer.t === 'waits' && answer.news) this.#report(call, answer.row)
    if (answer.t === 'free' || answer.t === 'accepted') return answer.t === 'accepted'
    throw refusal(call, answer)
  }

  /**
   * Runs inside the transaction of the join and removes the accepted row from the list. Returns true if an operator has
   * accepted these facts, false if the join needs no approval. Throws RefusedError if the join is not accepted, or no
   * longer is.
   */
  take(tx: Transaction, { cluster, request }: JoinCall, token: HeldToken, keyHash: string): boolean {
    const row = waitingJoin(tx, cluster, token.id, this.#deps.clock.now())
    const isNeeded = this.isNeeded(token.row) && !token.repeated
    if (isNeeded && (row === undefined || !isAcceptedAs(row, keyHash, request.facts))) throw awaits(cluster, keyHash)
    if (row?.keyHash === keyHash) tx.remove('waiting', waitingKey(cluster, token.id))
    return isNeeded
  }

  /** The waiting cluster withdraws its join. Throws RefusedError. */
  async withdraw(request: JoinRequest, token: string, { address, startedMs }: Omit<JoinCall, 'cluster' | 'request'>) {
    const { log, clock, audit, logger } = this.#deps
    this.#limit(token)
    const keyHash = await hashOf(request)
    const gone = await log.transact((tx) => {
      const found = withdrawJoin(tx, token, keyHash, clock.now())
      if (found === undefined) return undefined
      const { cluster } = found
      const who: AuditActor = { kind: 'joining', cluster, token, address }
      const tookMs = clock.monotonic() - startedMs
      audit.keep(tx, {
        act: 'join.withdraw',
        result: 'ok',
        who,
        subject: cluster,
        details: waitingDetails(found),
        tookMs,
      })
      return cluster
    })
    if (gone === undefined) {
      const text = 'withdraw: no request with this token and this key waits for approval'
      throw new RefusedError('WaitingUnknown', 'withdraw', text)
    }
    logger.info('a cluster has withdrawn its request for approval', { cluster: gone, token, address })
  }

  /** Removes waiting joins whose tokens have ended or were revoked. The caller runs it regularly inside a transaction. */
  prune(tx: Transaction): void {
    const { clock, audit } = this.#deps
    for (const { cluster, token, row, reason } of pruneWaiting(tx, clock.now())) {
      const details = waitingDetails({ cluster, token, row })
      const who = { kind: 'broker' } as const
      audit.keep(tx, { act: 'join.waiting', result: 'refused', reason, who, subject: cluster, details })
    }
  }

  #ask(
    tx: Transaction,
    call: JoinCall,
    given: { readonly keyHash: string; readonly renumbers: readonly string[] },
  ): Answer {
    const { clock, audit } = this.#deps
    const { cluster, request, address, startedMs } = call
    const token = checkToken(tx, request.secret, { cluster, keyHash: given.keyHash, nowMs: clock.now() })
    if (token.repeated || !this.isNeeded(token.row)) return { t: 'free' }
    const { id, row } = token
    const ask = { cluster, token: { id, expiresAtMs: row.expiresAtMs }, ...given, facts: request.facts, address }
    const answer = askForApproval(tx, { ...ask, nowMs: clock.now() })
    if (answer.t === 'waits' && answer.news && audit.allows(tokenSource(id))) {
      const who: AuditActor = { kind: 'joining', cluster, token: id, address }
      const details = waitingDetails({ cluster, token: id, row: answer.row })
      const tookMs = clock.monotonic() - startedMs
      audit.keep(tx, { act: 'join.waiting', result: 'ok', who, subject: cluster, details, tookMs })
    }
    return answer
  }

  #limit(key: string): void {
    this.#gate.check(key)
    this.#gate.count(key)
  }

  #report({ cluster, address }: JoinCall, { keyHash }: WaitingRow): void {
    const { logger, metrics } = this.#deps
    metrics.joins.inc({ result: 'waiting' })
    const fingerprint = keyFingerprint(keyHash)
    logger.info('a cluster waits for approval', { cluster, address, fingerprint })
  }
}

/** Whether the error means that the join waits for approval: it was neither granted nor refused. */
export function isWaiting(error: unknown): boolean {
  return error instanceof RefusedError && error.reason === 'JoinAwaitsApproval'
}

/**
 * The refusal of a look at a join that needs approval: what the join changes for other members is shown to the operator
 * only.
 */
export function lookNeedsApproval(): RefusedError {
  const text = 'approval: an operator of the broker decides about this join, and sees what it changes for other members'
  return new RefusedError('JoinAwaitsApproval', 'approval', text)
}

async function hashOf({ csr }: JoinRequest): Promise<string> {
  try {
    return await csrKeyHash(csr)
  } catch (error) {
    if (error instanceof CsrError) throw new RefusedError('InvalidValue', 'csr', error.message)
    throw error
  }
}

function refusal({ cluster }: JoinCall, answer: Exclude<Answer, { readonly t: 'free' | 'accepted' }>): RefusedError {
  switch (answer.t) {
    case 'waits':
      return awaits(cluster, answer.row.keyHash)
    case 'refused': {
      const at = timeText(answer.row.refusedAtMs ?? 0)
      const text = `approval: an operator of the broker refused cluster ${quote(cluster)} at ${at}`
      return new RefusedError('JoinRefusedByOperator', 'approval', text)
    }
    case 'otherKey': {
      const since = timeText(answer.row.sinceMs)
      const text = `token: a request with another key uses it and has waited for approval since ${since}, also as cluster ${quote(cluster)}`
      return new RefusedError('TokenAwaitsApproval', 'token', text)
    }
    case 'full': {
      const whose = answer.of === 'all' ? '' : ' with this token'
      const text = `approval: the limit of ${answer.limit} waiting clusters${whose} is reached: try again later`
      return new RefusedError('WaitingLimit', 'approval', text)
    }
  }
}

function cannotWait(): RefusedError {
  return new RefusedError(
    'ApprovalNotSupported',
    'approval',
    'approval: an operator of the broker must approve each join, and this release of Sealane does not support ' +
      "that: join with the broker's release; the token is still valid",
  )
}

function awaits(cluster: string, keyHash: string): RefusedError {
  const fingerprint = keyFingerprint(keyHash)
  const text =
    `approval: cluster ${quote(cluster)} waits for approval by an operator; on the broker, compare the ` +
    `fingerprint, then run: sealane cluster accept ${cluster} --fingerprint ${fingerprint}`
  return new RefusedError('JoinAwaitsApproval', 'approval', text)
}
