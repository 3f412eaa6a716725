/** Which authority does what, and which members and tokens delay a rotation. Pure. */
import type { WatchMessage } from '../../protocol/protocol.ts'
import {
  AUTHORITY_KEY,
  type AuthorityRow,
  type KnownAuthority,
  type LogView,
  type MemberRow,
  type TokenRow,
} from '../store/store.ts'

/** Limit of removed authorities that are kept, so that a refusal can name them. */
const MAX_REMOVED = 4

/** The authority that signs and serves. */
export function signingAuthority({ current, next }: AuthorityRow): KnownAuthority {
  return next?.phase === 'switched' ? next : current
}

/** Authorities whose member certificates are accepted. */
export function acceptedAuthorities({ current, next }: AuthorityRow): readonly KnownAuthority[] {
  return next === undefined ? [current] : [current, next]
}

/**
 * The authorities that members are to trust. The first authority comes first as long as it is trusted: members of the
 * last release name their copy of the bundle by it.
 */
export function bundleOf({ current, next }: AuthorityRow): readonly KnownAuthority[] {
  return next === undefined || next.phase === 'withdrawn' ? [current] : [current, next]
}

export interface MemberState {
  readonly id: string
  /**
   * When the last of its certificates ends. After that the member joins with a token, and the rotation does not wait
   * for it.
   */
  readonly endsAtMs: number
  /** Whether its use of certificates shows that it trusts the second authority. */
  readonly knowsNext: boolean
  /** Whether a usable certificate of the member was issued by the first authority. */
  readonly usesCurrent: boolean
  /** Whether one was issued by the second authority. */
  readonly usesNext: boolean
  /** Whether it learns of another authority at once rather than with its next renewal. */
  readonly follows: boolean
}

/**
 * The state of a member in a rotation. Undefined if all its certificates have ended or it is being rekeyed: the
 * rotation does not wait for it.
 */
export function memberState(
  id: string,
  row: MemberRow,
  { current, next }: AuthorityRow,
  nowMs: number,
): MemberState | undefined {
  const ends = [...row.certificates.map(({ expiresAtMs }) => expiresAtMs), row.issuedUntilMs ?? 0]
  const endsAtMs = Math.max(...ends, 0)
  if (endsAtMs <= nowMs || row.rekeyedAtMs !== undefined) return undefined
  const signers = row.certificates.map(({ authority }) => authority ?? current.fingerprint)
  const onItsWay = row.handedOut !== undefined && row.handedOut.expiresAtMs > nowMs ? row.handedOut : undefined
  if (onItsWay !== undefined) signers.push(onItsWay.authority)
  // A certificate that was sent may already be stored, so the member must trust the second authority by that bundle
  // too.
  const known = [row.trusts ?? [], ...(onItsWay === undefined ? [] : [onItsWay.bundle])]
  return {
    id,
    endsAtMs,
    knowsNext: next !== undefined && known.every((bundle) => bundle.includes(next.fingerprint)),
    usesCurrent: signers.includes(current.fingerprint),
    usesNext: next !== undefined && signers.includes(next.fingerprint),
    follows: row.followsAuthorities === true,
  }
}

/** Whether the token is usable and would not name an authority in use if only `remaining` were left. */
export function needsOther(
  token: TokenRow,
  remaining: KnownAuthority,
  { current }: AuthorityRow,
  nowMs: number,
): boolean {
  if (token.revokedAtMs !== undefined || token.usesLeft <= 0 || token.expiresAtMs <= nowMs) return false
  return !(token.pins ?? [current.fingerprint]).includes(remaining.fingerprint)
}

export interface Waiting {
  readonly members: readonly MemberState[]
  /** Ids of the tokens. */
  readonly tokens: readonly string[]
}

interface Rows {
  readonly members: readonly MemberState[]
  readonly tokens: readonly { readonly key: string; readonly value: TokenRow }[]
}

/**
 * The members and tokens that delay the next step. In `announced`, the second authority is to sign and serve. In
 * `switched`, the first one is to be removed. In `withdrawn`, the second one is to be removed.
 */
export function waitingFor(row: AuthorityRow, { members, tokens }: Rows, nowMs: number): Waiting {
  const { next } = row
  if (next === undefined) return { members: [], tokens: [] }
  const remaining = next.phase === 'withdrawn' ? row.current : next
  const held = tokens.filter(({ value }) => needsOther(value, remaining, row, nowMs)).map(({ key }) => key)
  switch (next.phase) {
    case 'announced':
      return { members: members.filter(({ knowsNext }) => !knowsNext), tokens: held }
    case 'switched':
      return { members: members.filter((one) => !one.knowsNext || one.usesCurrent), tokens: held }
    case 'withdrawn':
      // Tokens that name only the second authority were made while it served. Clusters that show them get the first one
      // in the response.
      return { members: members.filter(({ usesNext }) => usesNext), tokens: [] }
  }
}

export function isFree({ members, tokens }: Waiting): boolean {
  return members.length === 0 && tokens.length === 0
}

/** The row with the second authority as the only one. */
export function finished(row: AuthorityRow, nowMs: number): AuthorityRow {
  if (row.next === undefined) return row
  const { phase: _phase, phaseSinceMs: _since, ...current } = row.next
  return {
    current,
    removed: [...row.removed, { ...row.current, removedAtMs: nowMs, by: 'finish' as const }].slice(-MAX_REMOVED),
  }
}

/** The row without the second authority. */
export function dropped(row: AuthorityRow, nowMs: number): AuthorityRow {
  if (row.next === undefined) return row
  const { phase: _phase, phaseSinceMs: _since, ...gone } = row.next
  return {
    current: row.current,
    removed: [...row.removed, { ...gone, removedAtMs: nowMs, by: 'abort' as const }].slice(-MAX_REMOVED),
  }
}

// The message about authorities to watchers. Pure.

/** Each renewal costs the broker a few milliseconds, so the renewals of 50 members are spread over a second. */
const MS_FOR_EACH = 20
const MIN_WITHIN_MS = 1000
const MAX_WITHIN_MS = 10 * 60_000

/** Undefined if there has never been more than one authority: members have it from their join. */
export function authoritiesMessage(view: LogView): Extract<WatchMessage, { t: 'authorities' }> | undefined {
  const row = view.get('authority', AUTHORITY_KEY)
  if (row === undefined || (row.next === undefined && row.removed.length === 0)) return undefined
  const within = Math.min(MAX_WITHIN_MS, Math.max(MIN_WITHIN_MS, view.count('member') * MS_FOR_EACH))
  return {
    t: 'authorities',
    bundle: bundleOf(row).map(({ fingerprint }) => fingerprint),
    signing: signingAuthority(row).fingerprint,
    withinMs: within,
  }
}
