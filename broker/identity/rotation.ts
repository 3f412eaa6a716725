/**
 * The steps of a rotation, each one transaction. Each decision is in the store, so any replica, or the broker after a
 * restart, continues from it. Each step may be repeated.
 */
import type { AuthorityFacts, AuthorityStatus } from '../../protocol/admin/admin.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import {
  AUTHORITY_KEY,
  type AuthorityRow,
  type KnownAuthority,
  type LogView,
  type NextAuthority,
  type Transaction,
  isLive,
  timeText,
} from '../store/store.ts'
import { certificateProblem, factsOf } from './authority-keys.ts'
import {
  type MemberState,
  type Waiting,
  dropped,
  finished,
  isFree,
  memberState,
  needsOther,
  signingAuthority,
  waitingFor,
} from './plan-rotation.ts'

/** Members and tokens that a refusal names. */
const MAX_NAMED = 20

export interface StepDone {
  readonly row: AuthorityRow
  /** The step was done before, and nothing was changed. */
  readonly repeated: boolean
}

/** Throws RefusedError if no broker of this release has started on this store yet. */
export function requireAuthority(view: LogView): AuthorityRow {
  const row = view.get('authority', AUTHORITY_KEY)
  if (row !== undefined) return row
  throw refuse('AuthorityNotRotating', 'the broker has not stored its authority yet: start it once with this release')
}

/** The members and tokens that delay the next step. Empty without a rotation. */
export function waitingNow(view: LogView, row: AuthorityRow, nowMs: number): Waiting {
  return waitingFor(row, { members: memberStates(view, row, nowMs), tokens: view.list('token') }, nowMs)
}

/** The states of all members for which a rotation waits, by id. */
export function memberStates(view: LogView, row: AuthorityRow, nowMs: number): readonly MemberState[] {
  return view.list('member').flatMap(({ key, value }) => {
    const state = isLive(value) ? memberState(key, value, row, nowMs) : undefined
    return state === undefined ? [] : [state]
  })
}

export interface AnnounceInit {
  readonly clusterset: string
  readonly nowMs: number
  /** Makes an announced authority sign and serve at once, even if members do not trust it yet. */
  readonly force: boolean
}

/**
 * Announces a second authority. One that is being withdrawn is announced again. Without `wanted`, there must be one.
 * Throws RefusedError if another one is announced, if `wanted` cannot be an authority, or if `force` is set and none is
 * announced.
 */
export function announce(
  tx: Transaction,
  wanted: KnownAuthority | undefined,
  { clusterset, nowMs, force }: AnnounceInit,
): StepDone {
  const row = requireAuthority(tx)
  const { next } = row
  if (next?.phase !== 'announced' && next?.phase !== 'switched' && force)
    throw refuse(
      'AuthorityNotRotating',
      'no authority is announced: use --force only for a rotation that waits for members or tokens',
    )
  if (next !== undefined && (wanted === undefined || wanted.fingerprint === next.fingerprint)) {
    if (next.phase === 'announced' && force) return { row: forceSwitch(tx, row, next, nowMs), repeated: false }
    if (next.phase !== 'withdrawn') return { row, repeated: true }
    return { row: write(tx, { ...row, next: inPhase(next, 'announced', nowMs) }), repeated: false }
  }
  if (next !== undefined) {
    throw refuse(
      'AuthorityRotating',
      `${short(next)} is already ${next.phase}: run "sealane broker ca finish" or "sealane broker ca abort" first`,
    )
  }
  if (wanted === undefined) throw new Error('nothing to announce')
  const problem = isRemoved(row, wanted) ? 'it was removed earlier' : certificateProblem(wanted, clusterset, nowMs)
  if (wanted.fingerprint === row.current.fingerprint)
    throw refuse('AuthorityUnusable', `${short(wanted)} is already in use`)
  if (problem !== undefined) throw refuse('AuthorityUnusable', `${short(wanted)} cannot be the next one: ${problem}`)
  const announced: NextAuthority = { ...wanted, sinceMs: nowMs, phase: 'announced', phaseSinceMs: nowMs }
  return { row: write(tx, { ...row, next: announced }), repeated: false }
}

function forceSwitch(tx: Transaction, row: AuthorityRow, next: NextAuthority, nowMs: number): AuthorityRow {
  revokeUseless(tx, row, next, nowMs)
  return write(tx, { ...row, next: inPhase(next, 'switched', nowMs) })
}

/** Revokes tokens that name only the authority that is no longer used: a broker cannot be found by them. */
function revokeUseless(tx: Transaction, row: AuthorityRow, remaining: KnownAuthority, nowMs: number): void {
  for (const { key, value } of tx.list('token')) {
    if (needsOther(value, remaining, row, nowMs)) tx.put('token', key, { ...value, revokedAtMs: nowMs })
  }
}

/** A step that the broker takes by itself once nothing delays it. */
export type Advance = 'switched' | 'dropped'

/** The step that is due. Undefined if there is none, or if members or tokens delay it. */
export function dueAdvance(view: LogView, nowMs: number): Advance | undefined {
  const row = view.get('authority', AUTHORITY_KEY)
  const phase = row?.next?.phase
  if (row === undefined || phase === undefined || phase === 'switched') return undefined
  if (!isFree(waitingNow(view, row, nowMs))) return undefined
  return phase === 'announced' ? 'switched' : 'dropped'
}

/** Takes the step if it is still due in this transaction. */
export function advance(tx: Transaction, wanted: Advance, nowMs: number): AuthorityRow | undefined {
  const row = tx.get('authority', AUTHORITY_KEY)
  if (row?.next === undefined || dueAdvance(tx, nowMs) !== wanted) return undefined
  if (wanted === 'dropped') return write(tx, dropped(row, nowMs))
  return write(tx, { ...row, next: inPhase(row.next, 'switched', nowMs) })
}

/**
 * Removes the first authority. Throws RefusedError naming the members and tokens that depend on it, unless `force` is
 * set. Also throws if the second one does not sign yet, and if there is no rotation.
 */
export function finishRotation(tx: Transaction, { force }: { readonly force: boolean }, nowMs: number): StepDone {
  const row = requireAuthority(tx)
  const { next, current } = row
  if (next === undefined) {
    if (row.removed.at(-1)?.by === 'finish') return { row, repeated: true }
    throw refuse('AuthorityNotRotating', 'no authority is announced: run "sealane broker ca rotate" first')
  }
  if (next.phase === 'withdrawn') {
    throw refuse(
      'AuthorityNotRotating',
      `${short(next)} is being withdrawn: to announce it again, run "sealane broker ca rotate"`,
    )
  }
  const waiting = waitingNow(tx, row, nowMs)
  // No member has a certificate of the new authority yet: all would lose access.
  if (next.phase !== 'switched' || (!force && !isFree(waiting))) throw inUse(row, waiting)
  revokeUseless(tx, row, next, nowMs)
  for (const { key, value } of tx.list('member')) {
    if (value.trusts === undefined) tx.put('member', key, { ...value, trusts: [current.fingerprint] })
  }
  return { row: write(tx, finished(row, nowMs)), repeated: false }
}

/** Goes back to the first authority. Throws RefusedError if there is no rotation. */
export function abortRotation(tx: Transaction, nowMs: number): StepDone {
  const row = requireAuthority(tx)
  const { next } = row
  if (next === undefined) {
    if (row.removed.at(-1)?.by === 'abort') return { row, repeated: true }
    const last = row.removed.at(-1)
    const over =
      last === undefined
        ? ''
        : `: the previous authority was removed at ${timeText(last.removedAtMs)} and cannot be restored`
    throw refuse('AuthorityNotRotating', `no authority is announced${over}`)
  }
  if (next.phase === 'withdrawn') return { row, repeated: true }
  // No member has a certificate of it yet.
  if (next.phase === 'announced' && memberStates(tx, row, nowMs).every(({ usesNext }) => !usesNext))
    return { row: write(tx, dropped(row, nowMs)), repeated: false }
  return { row: write(tx, { ...row, next: inPhase(next, 'withdrawn', nowMs) }), repeated: false }
}

/** Why the rotation waits for a member, as text for operators. */
export function waitsText({ knowsNext, endsAtMs, follows }: MemberState, phase: NextAuthority['phase']): string {
  const until = `at the latest until its certificate expires at ${timeText(endsAtMs)}`
  const learns = follows ? '' : '; it renews on its own schedule, because it runs an earlier release'
  if (phase === 'withdrawn') return `uses a certificate of the withdrawn authority, ${until}${learns}`
  if (!knowsNext) return `does not have the new authority yet, ${until}${learns}`
  return `uses a certificate of the old authority, ${until}${learns}`
}

function inUse(row: AuthorityRow, { members, tokens }: Waiting): RefusedError {
  const phase = row.next?.phase ?? 'announced'
  const named = [
    ...members.map((one) => `${one.id} ${waitsText(one, phase)}`),
    ...tokens.map((id) => `token ${id} pins only the old authority: use it or revoke it`),
  ]
  const more = named.length > MAX_NAMED ? [`and ${named.length - MAX_NAMED} more`] : []
  const list = [...named.slice(0, MAX_NAMED), ...more].join('; ')
  const what = phase === 'announced' ? 'the new authority cannot sign yet' : 'the old authority is still in use'
  const forced = phase === 'announced' ? '"sealane broker ca rotate --force"' : '--force'
  const hint = `wait and check "sealane broker ca status", or cut them off with ${forced}`
  return refuse('AuthorityInUse', `${what}${list === '' ? '' : `: ${list}`}: ${hint}`)
}

function isRemoved({ removed }: AuthorityRow, { fingerprint }: KnownAuthority): boolean {
  return removed.some((one) => one.fingerprint === fingerprint)
}

function inPhase(next: NextAuthority, phase: NextAuthority['phase'], nowMs: number): NextAuthority {
  return { ...next, phase, phaseSinceMs: nowMs }
}

function write(tx: Transaction, row: AuthorityRow): AuthorityRow {
  tx.put('authority', AUTHORITY_KEY, row)
  return row
}

function short({ fingerprint }: KnownAuthority): string {
  return `authority ${fingerprint.slice(0, 16)}`
}

function refuse(
  reason: 'AuthorityInUse' | 'AuthorityNotRotating' | 'AuthorityRotating' | 'AuthorityUnusable',
  message: string,
): RefusedError {
  return new RefusedError(reason, 'authority', message)
}

/** The authorities of a clusterset as an operator sees them. Pure. */
export function authorityStatus(view: LogView, row: AuthorityRow, nowMs: number): AuthorityStatus {
  const { current, next, removed } = row
  const signing = signingAuthority(row)
  const phase = next?.phase ?? 'steady'
  const waiting = waitingNow(view, row, nowMs)
  const facts = (one: KnownAuthority): AuthorityFacts => {
    const { notBeforeMs, notAfterMs } = factsOf(one)
    const signs = one.fingerprint === signing.fingerprint
    return { fingerprint: one.fingerprint, notBefore: time(notBeforeMs), notAfter: time(notAfterMs), signs }
  }
  return {
    phase,
    since: time(next?.phaseSinceMs ?? current.sinceMs),
    current: facts(current),
    ...(next === undefined ? {} : { next: facts(next) }),
    waitsFor: {
      members: waiting.members.map((one) => ({ id: one.id, why: waitsText(one, next?.phase ?? 'announced') })),
      tokens: waiting.tokens,
    },
    members: memberStates(view, row, nowMs).map(({ id, knowsNext, usesCurrent, usesNext, follows, endsAtMs }) => ({
      id,
      knowsNext,
      uses: usesCurrent && usesNext ? 'both' : usesCurrent ? 'current' : usesNext ? 'next' : 'other',
      follows,
      certificateEnds: time(endsAtMs),
    })),
    removed: removed.map(({ fingerprint, removedAtMs, by }) => ({ fingerprint, at: time(removedAtMs), by })),
  }
}

function time(ms: number): string {
  return new Date(ms).toISOString()
}
