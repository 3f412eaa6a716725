/**
 * Join tokens as rows of the store: checking, spending, revoking. Only the SHA-256 of the secret is stored, never the
 * secret.
 */
import { timingSafeEqual } from 'node:crypto'
import type { RefusalReason } from '../../model/reasons/reasons.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { hashTokenSecret } from '../../protocol/identity/identity.ts'
import { type Clock, TokenBucket, type TokenRate } from '../../reconcile/reconcile.ts'
import { quote } from '../records/records.ts'
import { type LogView, type TokenRow, type Transaction, isLive, timeText } from '../store/store.ts'
import { isAccepted, usesHeld } from './waiting-joins.ts'

export interface TokenBearer {
  readonly cluster: string
  /** Absent as long as the signing request has not been read. */
  readonly keyHash?: string
  readonly nowMs: number
}

/** Limit of tokens in the store, including those that can no longer be used. */
export const MAX_TOKENS = 10_000

const CREATE_ANOTHER = 'create a new one with "sealane token create"'

/** Whether the text has the form of a secret: 256 bits in base64url. */
export function hasSecretForm(secret: string): boolean {
  return /^[A-Za-z0-9_-]{43}$/.test(secret)
}

/** False for a secret or a whole token: an operator who mistakes it for the id must not find it in a log. */
export function isTokenId(text: string): boolean {
  return /^[A-Za-z0-9-]{1,64}$/.test(text) && !hasSecretForm(text)
}

/** Throws RefusedError: Unauthenticated, field `token`. */
export function checkSecretForm(secret: string): void {
  if (hasSecretForm(secret)) return
  throw new RefusedError('TokenMalformed', 'token', `token: malformed: ${CREATE_ANOTHER}`)
}

/**
 * The row of this secret, if this bearer may use it now. The same cluster may use a spent token again with the same
 * key, as long as the membership that it began lasts: the response to the first request was lost. Throws RefusedError.
 */
export function checkToken(
  view: LogView,
  secret: string,
  bearer: TokenBearer,
): { readonly id: string; readonly row: TokenRow; readonly repeated: boolean } {
  const found = findToken(view, secret)
  if (found === undefined) throw unknownToken()
  const { key: id, value: row } = found
  if (row.revokedAtMs !== undefined)
    throw refuse('TokenRevoked', `${id} was revoked at ${timeText(row.revokedAtMs)}: ${CREATE_ANOTHER}`)
  if (row.expiresAtMs <= bearer.nowMs && !isAccepted(view, id, bearer))
    throw refuse('TokenExpired', `${id} expired at ${timeText(row.expiresAtMs)}: ${CREATE_ANOTHER}`)
  if (row.cluster !== undefined && row.cluster !== bearer.cluster) {
    const message = `token: ${id} is for cluster ${quote(row.cluster)}, not ${quote(bearer.cluster)}`
    throw new RefusedError('TokenForOtherCluster', 'token', message)
  }
  const repeated = isRepeated(view, row, bearer)
  if (row.usesLeft <= 0 && !repeated && bearer.keyHash !== undefined) {
    const last = row.uses.at(-1)
    const by = last === undefined ? '' : ` by cluster ${quote(last.cluster)} at ${timeText(last.atMs)}`
    throw refuse('TokenUsed', `${id} was already used${by}: ${CREATE_ANOTHER}`)
  }
  if (!repeated && bearer.keyHash !== undefined) checkNotHeld(view, { id, row }, bearer)
  if (bearer.keyHash !== undefined) checkNotEvicted(view, { id, row }, bearer)
  return { id, row, repeated }
}

export function unknownToken(): RefusedError {
  return refuse(
    'TokenUnknown',
    `not known to this broker: another broker created it, or it was removed; ${CREATE_ANOTHER}`,
  )
}

/** A join that waits for approval holds a use of its token: no other caller can take that use. */
function checkNotHeld(
  view: LogView,
  { id, row }: { readonly id: string; readonly row: TokenRow },
  bearer: TokenBearer,
): void {
  const held = usesHeld(view, id, bearer)
  const [first] = held
  if (first === undefined || held.length < row.usesLeft) return
  const since = timeText(first.row.sinceMs)
  throw refuse(
    'TokenAwaitsApproval',
    `${id} is in use by a request with another key, as cluster ${quote(first.cluster)}, which has waited for approval since ${since}: ` +
      CREATE_ANOTHER,
  )
}

/**
 * A token of many uses admits every cluster that holds it, except a member that was evicted after it had joined with
 * it.
 */
function checkNotEvicted(
  view: LogView,
  { id, row }: { readonly id: string; readonly row: TokenRow },
  { cluster }: TokenBearer,
): void {
  const member = view.get('member', cluster)
  if (member?.departure !== 'evicted' || member.departedAtMs === undefined) return
  if (!row.uses.some((use) => use.cluster === cluster)) return
  const at = timeText(member.departedAtMs)
  throw refuse(
    'TokenOfEvictedMember',
    `${id} was used by cluster ${quote(cluster)} before it was evicted at ${at}: ${CREATE_ANOTHER}`,
  )
}

/**
 * Whether this repeats a granted request. A cluster that has left, was evicted or was succeeded cannot rejoin with the
 * old request.
 */
function isRepeated(view: LogView, row: TokenRow, { cluster, keyHash }: TokenBearer): boolean {
  if (keyHash === undefined) return false
  const member = view.get('member', cluster)
  if (!isLive(member) || member.joinKeyHash !== keyHash) return false
  return row.uses.some((use) => use.cluster === cluster && use.keyHash === keyHash)
}

/** Takes one use off the token. */
export function spendToken(
  tx: Transaction,
  token: { readonly id: string; readonly row: TokenRow; readonly repeated: boolean },
  bearer: Required<TokenBearer>,
): void {
  if (token.repeated) return
  const use = { cluster: bearer.cluster, atMs: bearer.nowMs, keyHash: bearer.keyHash }
  tx.put('token', token.id, { ...token.row, usesLeft: token.row.usesLeft - 1, uses: [...token.row.uses, use] })
}

/** Revokes the token and removes the joins that wait with it. Throws RefusedError if there is no such token. */
export function revokeToken(tx: Transaction, id: string, nowMs: number): TokenRow {
  if (!isTokenId(id)) {
    const text = 'token: expected the id that "sealane token list" prints'
    throw new RefusedError('TokenUnknown', 'token', text, 'FailedPrecondition')
  }
  const row = tx.get('token', id)
  if (row === undefined)
    throw new RefusedError('TokenUnknown', 'token', `token ${quote(id)}: not known`, 'FailedPrecondition')
  if (row.revokedAtMs !== undefined) return row
  const revoked = { ...row, revokedAtMs: nowMs }
  for (const { key } of tx.list('waiting')) if (key.endsWith(`/${id}`)) tx.remove('waiting', key)
  tx.put('token', id, revoked)
  return revoked
}

/** How long tokens that can no longer be used stay in the list, so that a refusal can still say why. */
const KEEP_DEAD_TOKENS_MS = 7 * 24 * 3_600_000

export function pruneTokens(tx: Transaction, nowMs: number): void {
  for (const { key, value } of tx.list('token')) {
    if (Math.min(value.expiresAtMs, value.revokedAtMs ?? Infinity) < nowMs - KEEP_DEAD_TOKENS_MS)
      tx.remove('token', key)
  }
}

/** Whether the store has a token of this secret, usable or not. */
export function isKnownToken(view: LogView, secret: string): boolean {
  return findToken(view, secret) !== undefined
}

/** Id of the token of this secret. Undefined if there is none. */
export function tokenId(view: LogView, secret: string): string | undefined {
  return findToken(view, secret)?.key
}

/** Compares every token, so that the duration reveals nothing about any of them. */
function findToken(view: LogView, secret: string): { readonly key: string; readonly value: TokenRow } | undefined {
  const hash = Buffer.from(hashTokenSecret(secret), 'hex')
  let found: { readonly key: string; readonly value: TokenRow } | undefined
  for (const row of view.list('token')) {
    if (timingSafeEqual(hash, Buffer.from(row.value.hash, 'hex'))) found = row
  }
  return found
}

function refuse(reason: RefusalReason, message: string): RefusedError {
  return new RefusedError(reason, 'token', `token: ${message}`)
}

const FAILURES: TokenRate = { burst: 20, perSecond: 1 / 3 }
const MAX_ADDRESSES = 4096

/**
 * Limits how many joins from one address may fail. Many clusters may share an address, so a caller that shows a known
 * token is not limited: failures of callers without a token only affect such callers.
 */
export class JoinGate {
  readonly #clock: Clock
  /** Ordered by their last failure. */
  readonly #addresses = new Map<string, TokenBucket>()

  readonly #says: (address: string) => string

  /** `says` names what the address did too often, for the refusal. */
  constructor(
    clock: Clock,
    says = (address: string) => `not known to this broker, and too many joins from ${address} have failed`,
  ) {
    this.#clock = clock
    this.#says = says
  }

  /** Throws RefusedError (ResourceExhausted) if too many joins of this address failed. */
  check(address: string): void {
    const used = this.#addresses.get(address)?.used(FAILURES.perSecond) ?? 0
    const over = used + 1 - FAILURES.burst
    if (over <= 0) return
    const seconds = Math.ceil(over / FAILURES.perSecond)
    const message = `token: ${this.#says(address)}: try again in ${seconds} s`
    throw new RefusedError('TooManyAttempts', 'token', message)
  }

  /** Counts a failure of this address. */
  count(address: string): void {
    const bucket = this.#addresses.get(address) ?? new TokenBucket(this.#clock)
    bucket.take(1, FAILURES, FAILURES.burst)
    this.#addresses.delete(address)
    this.#addresses.set(address, bucket)
    const oldest = this.#addresses.size > MAX_ADDRESSES ? this.#addresses.keys().next().value : undefined
    if (oldest !== undefined) this.#addresses.delete(oldest)
  }
}
