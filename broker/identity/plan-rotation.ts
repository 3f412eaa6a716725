/** Which authority does what, and who keeps a rotation from going on. Pure. */
import type { WatchMessage } from '../../protocol/protocol.ts'
import {
  AUTHORITY_KEY,
  type AuthorityRow,
  type KnownAuthority,
  type LogView,
  type MemberRow,
  type TokenRow,
} from '../store/store.ts'

/** Authorities of before that a refusal can still name. */
const MAX_REMOVED = 4

/** The one that signs and serves. */
export function signingAuthority({ current, next }: AuthorityRow): KnownAuthority {
  return next?.phase === 'switched' ? next : current
}

/** Whose certificates of members are taken. */
export function acceptedAuthorities({ current, next }: AuthorityRow): readonly KnownAuthority[] {
  return next === undefined ? [current] : [current, next]
}

/**
 * What members are to trust. The one of before comes first as long as it counts: members of the last release name the
 * copy of what they know by the first.
 */
export function bundleOf({ current, next }: AuthorityRow): readonly KnownAuthority[] {
  return next === undefined || next.phase === 'withdrawn' ? [current] : [current, next]
}

export interface MemberState {
  readonly id: string
  /** When the last of its certificates ends: past that it joins with a token, and nobody waits for it. */
  readonly endsAtMs: number
  /** It has told, by what it uses, that it trusts the second authority. */
  readonly knowsNext: boolean
  /** A certificate of it that may be used is of the first one. */
  readonly usesCurrent: boolean
  /** The same of the second. */
  readonly usesNext: boolean
  /** It learns at once; else with its next renewal. */
  readonly follows: boolean
}

/** How a member stands to the two authorities; undefined: nobody waits for it, since all its certificates have ended. */
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
  // What is on its way may be stored already, and then counts for the member whatever it trusted before.
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

/** Whether the token can be used, and names none of the authorities that remain when only `remaining` does. */
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
  /** Ids. */
  readonly tokens: readonly string[]
}

interface Rows {
  readonly members: readonly MemberState[]
  readonly tokens: readonly { readonly key: string; readonly value: TokenRow }[]
}

/**
 * Who keeps the next step from being done: in `announced` that the second authority signs and serves, in `switched` that
 * the first one is removed, in `withdrawn` that the second one is.
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
      // Tokens of the second alone were made while it served, and those who show them are told the first at once.
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

// What watchers are told of the authorities. Pure.

/** Each renewal costs the broker a few milliseconds: one second for 50 members. */
const MS_FOR_EACH = 20
const MIN_WITHIN_MS = 1000
const MAX_WITHIN_MS = 10 * 60_000

/** Undefined where there was never more than one: members have it from their join. */
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
