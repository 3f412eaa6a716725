/**
 * The operator's word on who joins. Where it is needed, a join puts itself into the list (waiting-joins.ts) and is
 * answered JoinAwaitsApproval until somebody has accepted it; nothing is signed, allocated or told before that.
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
  type WaitingAnswer,
  askForApproval,
  isAcceptedAs,
  pruneWaiting,
  waitingDetails,
  waitingJoin,
  waitingKey,
  withdrawJoin,
} from './waiting-joins.ts'

const MAX_RENUMBERS = 16

export interface ApprovalDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'joins'>
  readonly audit: Audit
}

/** One request to join, and who sent it. */
export interface JoinCall {
  readonly cluster: ClusterId
  readonly request: JoinRequest
  readonly address: string
  /** Monotonic. */
  readonly startedMs: number
}

interface HeldToken {
  readonly id: string
  readonly row: TokenRow
  readonly repeated: boolean
}

export interface ApprovalAsk {
  /** Throws RefusedError where the token was shown too often. */
  readonly pace: () => void
  /** Whom this join would give global addresses. Throws RefusedError where it cannot be granted anyway. */
  readonly renumbered: (keyHash: string) => Promise<readonly string[]>
}

/** `free`: nobody is asked. */
type Answer = WaitingAnswer | { readonly t: 'free' }

export class Approval {
  readonly #deps: ApprovalDeps
  readonly #ofAll: boolean
  /** By token and key. */
  readonly #gate: JoinGate

  /** `ofAll`: every join is asked about; otherwise those whose token says so. */
  constructor(deps: ApprovalDeps, ofAll: boolean) {
    this.#deps = deps
    this.#ofAll = ofAll
    this.#gate = new JoinGate(deps.clock, () => 'asked too often whether the join is approved')
  }

  /** Whether an operator is asked about joins with this token. */
  isNeeded({ approve }: Pick<TokenRow, 'approve'>): boolean {
    return this.#ofAll || approve === true
  }

  /**
   * Resolves when the join may go on. True: an operator has accepted this very key; false: nobody is asked. Throws
   * RefusedError: JoinAwaitsApproval while nobody has answered.
   */
  async require(call: JoinCall, { pace, renumbered }: ApprovalAsk): Promise<boolean> {
    const { log, clock } = this.#deps
    const { cluster, request } = call
    const bearer = { cluster, nowMs: clock.now() }
    const token = checkToken(log, request.secret, bearer)
    if (!this.isNeeded(token.row)) return false
    const keyHash = await hashOf(request)
    const known = waitingJoin(log, cluster, token.id, bearer.nowMs)
    // Who shows the token with another key must not slow down the one that waits with it.
    if (known?.keyHash === keyHash) this.#pace(`${token.id}/${keyHash}`)
    else pace()
    if (checkToken(log, request.secret, { ...bearer, keyHash }).repeated) return false
    if (request.waits !== true) throw cannotWait()
    const renumbers = known === undefined ? (await renumbered(keyHash)).slice(0, MAX_RENUMBERS) : []
    const answer = await log.transact((tx) => this.#ask(tx, call, { keyHash, renumbers }))
    if (answer.t === 'waits' && answer.news) this.#report(call, answer.row)
    if (answer.t === 'free' || answer.t === 'accepted') return answer.t === 'accepted'
    throw refusal(call, answer)
  }

  /**
   * Inside the transaction that joins: takes what was accepted out of the list. True: an operator has accepted these
   * facts; false: nobody is asked. Throws RefusedError where it is not accepted, or not any more.
   */
  take(tx: Transaction, { cluster, request }: JoinCall, token: HeldToken, keyHash: string): boolean {
    const row = waitingJoin(tx, cluster, token.id, this.#deps.clock.now())
    const isNeeded = this.isNeeded(token.row) && !token.repeated
    if (isNeeded && (row === undefined || !isAcceptedAs(row, keyHash, request.facts))) throw awaits(cluster, keyHash)
    if (row?.keyHash === keyHash) tx.remove('waiting', waitingKey(cluster, token.id))
    return isNeeded
  }

  /** The one that waits wants to join no more. Throws RefusedError. */
  async withdraw(request: JoinRequest, token: string, { address, startedMs }: Omit<JoinCall, 'cluster' | 'request'>) {
    const { log, clock, audit, logger } = this.#deps
    this.#pace(token)
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
      const text = 'withdraw: nothing waits for approval with this token and this key'
      throw new RefusedError('WaitingUnknown', 'withdraw', text)
    }
    logger.info('a cluster waits for approval no more: it was withdrawn there', { cluster: gone, token, address })
  }

  /** To be called now and then, inside a transaction: those whose tokens have ended wait no more. */
  prune(tx: Transaction): void {
    const { clock, audit } = this.#deps
    for (const { cluster, token, row } of pruneWaiting(tx, clock.now())) {
      const details = waitingDetails({ cluster, token, row })
      const who = { kind: 'broker' } as const
      audit.keep(tx, { act: 'join.waiting', result: 'refused', reason: 'TokenExpired', who, subject: cluster, details })
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

  #pace(key: string): void {
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

/** Whether a join was neither granted nor refused. */
export function isWaiting(error: unknown): boolean {
  return error instanceof RefusedError && error.reason === 'JoinAwaitsApproval'
}

/** Of a look: what a join changes for others, the operator is told. */
export function lookNeedsApproval(): RefusedError {
  const text = 'approval: an operator of the broker decides about this join, and is told what it changes for others'
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
      const text = `token: another key waits with it for approval since ${since}, as cluster ${quote(cluster)} too`
      return new RefusedError('TokenAwaitsApproval', 'token', text)
    }
    case 'full': {
      const whose = answer.of === 'all' ? '' : ' with this token'
      const text = `approval: ${answer.limit} clusters wait${whose} already, which is the limit: try again later`
      return new RefusedError('WaitingLimit', 'approval', text)
    }
  }
}

function cannotWait(): RefusedError {
  return new RefusedError(
    'ApprovalNotSupported',
    'approval',
    'approval: an operator of the broker has to approve who joins, and this release of Sealane cannot wait for ' +
      'that: join with the release that the broker has; the token is not spent',
  )
}

function awaits(cluster: string, keyHash: string): RefusedError {
  const fingerprint = keyFingerprint(keyHash)
  const text =
    `approval: cluster ${quote(cluster)} waits for an operator of the broker; on the broker, compare the ` +
    `fingerprint, then: sealane cluster accept ${cluster} --fingerprint ${fingerprint}`
  return new RefusedError('JoinAwaitsApproval', 'approval', text)
}
