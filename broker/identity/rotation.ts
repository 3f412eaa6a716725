/**
 * The steps of a rotation, each one transaction: what is decided is in the store, and any replica, or the broker's next
 * start, goes on from there. Each step may be asked for again.
 */
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
  /** It was so before, and nothing was done. */
  readonly repeated: boolean
}

/** Throws RefusedError where no broker of this release has started on this store yet. */
export function requireAuthority(view: LogView): AuthorityRow {
  const row = view.get('authority', AUTHORITY_KEY)
  if (row !== undefined) return row
  throw refuse(
    'AuthorityNotRotating',
    'the broker has not written down its authority yet: start it once with this release',
  )
}

/** What stands in the way of the next step; empty where nothing rotates. */
export function waitingNow(view: LogView, row: AuthorityRow, nowMs: number): Waiting {
  return waitingFor(row, { members: memberStates(view, row, nowMs), tokens: view.list('token') }, nowMs)
}

/** Of all members that are waited for, by id. */
export function memberStates(view: LogView, row: AuthorityRow, nowMs: number): readonly MemberState[] {
  return view.list('member').flatMap(({ key, value }) => {
    const state = isLive(value) ? memberState(key, value, row, nowMs) : undefined
    return state === undefined ? [] : [state]
  })
}

export interface AnnounceInit {
  readonly clusterset: string
  readonly nowMs: number
  /** One that is announced already signs and serves from now on, whoever has not got it. */
  readonly force: boolean
}

/**
 * Announces a second authority. One that is being withdrawn is taken up again; without `wanted` there must be one.
 * Throws RefusedError where another one is announced, it cannot be one, or none is announced that could be forced.
 */
export function announce(
  tx: Transaction,
  wanted: KnownAuthority | undefined,
  { clusterset, nowMs, force }: AnnounceInit,
): StepDone {
  const row = requireAuthority(tx)
  const { next } = row
  if (next?.phase !== 'announced' && next?.phase !== 'switched' && force)
    throw refuse('AuthorityNotRotating', 'no authority is announced: --force is for one that waits for somebody')
  if (next !== undefined && (wanted === undefined || wanted.fingerprint === next.fingerprint)) {
    if (next.phase === 'announced' && force) return { row: forceSwitch(tx, row, next, nowMs), repeated: false }
    if (next.phase !== 'withdrawn') return { row, repeated: true }
    return { row: write(tx, { ...row, next: inPhase(next, 'announced', nowMs) }), repeated: false }
  }
  if (next !== undefined) {
    throw refuse(
      'AuthorityRotating',
      `${short(next)} is ${next.phase} already: "sealane broker ca finish" or "sealane broker ca abort" first`,
    )
  }
  if (wanted === undefined) throw new Error('nothing to announce')
  const problem = isRemoved(row, wanted) ? 'it was removed before' : certificateProblem(wanted, clusterset, nowMs)
  if (wanted.fingerprint === row.current.fingerprint)
    throw refuse('AuthorityUnusable', `${short(wanted)} is the one in use`)
  if (problem !== undefined) throw refuse('AuthorityUnusable', `${short(wanted)} cannot be the next one: ${problem}`)
  const announced: NextAuthority = { ...wanted, sinceMs: nowMs, phase: 'announced', phaseSinceMs: nowMs }
  return { row: write(tx, { ...row, next: announced }), repeated: false }
}

function forceSwitch(tx: Transaction, row: AuthorityRow, next: NextAuthority, nowMs: number): AuthorityRow {
  revokeUseless(tx, row, next, nowMs)
  return write(tx, { ...row, next: inPhase(next, 'switched', nowMs) })
}

/** Tokens by which no broker can be found any more. */
function revokeUseless(tx: Transaction, row: AuthorityRow, remaining: KnownAuthority, nowMs: number): void {
  for (const { key, value } of tx.list('token')) {
    if (needsOther(value, remaining, row, nowMs)) tx.put('token', key, { ...value, revokedAtMs: nowMs })
  }
}

/** What happens by itself once nothing waits for it. */
export type Advance = 'switched' | 'dropped'

/** What is due; undefined: nothing, or somebody is waited for. */
export function dueAdvance(view: LogView, nowMs: number): Advance | undefined {
  const row = view.get('authority', AUTHORITY_KEY)
  const phase = row?.next?.phase
  if (row === undefined || phase === undefined || phase === 'switched') return undefined
  if (!isFree(waitingNow(view, row, nowMs))) return undefined
  return phase === 'announced' ? 'switched' : 'dropped'
}

/** Does it, where it is still due in this transaction. */
export function advance(tx: Transaction, wanted: Advance, nowMs: number): AuthorityRow | undefined {
  const row = tx.get('authority', AUTHORITY_KEY)
  if (row?.next === undefined || dueAdvance(tx, nowMs) !== wanted) return undefined
  if (wanted === 'dropped') return write(tx, dropped(row, nowMs))
  return write(tx, { ...row, next: inPhase(row.next, 'switched', nowMs) })
}

/**
 * Removes the first authority. Throws RefusedError with the members and tokens that depend on it, unless `force`; where
 * the second one does not sign yet; and where there is no rotation.
 */
export function finishRotation(tx: Transaction, { force }: { readonly force: boolean }, nowMs: number): StepDone {
  const row = requireAuthority(tx)
  const { next, current } = row
  if (next === undefined) {
    if (row.removed.at(-1)?.by === 'finish') return { row, repeated: true }
    throw refuse('AuthorityNotRotating', 'no authority is announced: "sealane broker ca rotate" comes first')
  }
  if (next.phase === 'withdrawn') {
    throw refuse(
      'AuthorityNotRotating',
      `${short(next)} is being withdrawn: "sealane broker ca rotate" announces it again`,
    )
  }
  const waiting = waitingNow(tx, row, nowMs)
  // Nobody has a certificate of the new one yet: all would be cut off.
  if (next.phase !== 'switched' || (!force && !isFree(waiting))) throw inUse(row, waiting)
  revokeUseless(tx, row, next, nowMs)
  for (const { key, value } of tx.list('member')) {
    if (value.trusts === undefined) tx.put('member', key, { ...value, trusts: [current.fingerprint] })
  }
  return { row: write(tx, finished(row, nowMs)), repeated: false }
}

/** Goes back to the first authority. Throws RefusedError where there is no rotation. */
export function abortRotation(tx: Transaction, nowMs: number): StepDone {
  const row = requireAuthority(tx)
  const { next } = row
  if (next === undefined) {
    if (row.removed.at(-1)?.by === 'abort') return { row, repeated: true }
    const last = row.removed.at(-1)
    const over = last === undefined ? '' : `: the one before was removed at ${timeText(last.removedAtMs)}, for good`
    throw refuse('AuthorityNotRotating', `no authority is announced${over}`)
  }
  if (next.phase === 'withdrawn') return { row, repeated: true }
  // Nobody has anything of it yet.
  if (next.phase === 'announced' && memberStates(tx, row, nowMs).every(({ usesNext }) => !usesNext))
    return { row: write(tx, dropped(row, nowMs)), repeated: false }
  return { row: write(tx, { ...row, next: inPhase(next, 'withdrawn', nowMs) }), repeated: false }
}

/** Why a member is waited for, for people. */
export function waitsText({ knowsNext, endsAtMs, follows }: MemberState, phase: NextAuthority['phase']): string {
  const until = `at the latest until ${timeText(endsAtMs)}, when its certificate ends`
  const learns = follows ? '' : '; it renews by its own time, as members of earlier releases do'
  if (phase === 'withdrawn') return `uses a certificate of the authority that is withdrawn, ${until}${learns}`
  if (!knowsNext) return `has not got the new authority, ${until}${learns}`
  return `uses a certificate of the old authority, ${until}${learns}`
}

function inUse(row: AuthorityRow, { members, tokens }: Waiting): RefusedError {
  const phase = row.next?.phase ?? 'announced'
  const named = [
    ...members.map((one) => `${one.id} ${waitsText(one, phase)}`),
    ...tokens.map((id) => `token ${id} names the old authority alone: use it or revoke it`),
  ]
  const more = named.length > MAX_NAMED ? [`and ${named.length - MAX_NAMED} more`] : []
  const list = [...named.slice(0, MAX_NAMED), ...more].join('; ')
  const what = phase === 'announced' ? 'the new authority does not sign yet' : 'the old authority is in use'
  const forced = phase === 'announced' ? '"sealane broker ca rotate --force"' : '--force'
  const hint = `wait and see "sealane broker ca status", or cut them off with ${forced}`
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

export interface AuthorityFacts {
  /** SHA-256 of its certificate, hex. */
  readonly fingerprint: string
  readonly notBefore: string
  readonly notAfter: string
  /** It signs members and the broker's own certificate now. */
  readonly signs: boolean
}

export interface AuthorityStatus {
  /** `steady`: there is one. */
  readonly phase: 'steady' | 'announced' | 'switched' | 'withdrawn'
  readonly since: string
  readonly current: AuthorityFacts
  readonly next?: AuthorityFacts
  /** `finish` would be refused, or what comes by itself does not come yet. */
  readonly waitsFor: {
    readonly members: readonly { readonly id: string; readonly why: string }[]
    /** Ids of tokens that name the old authority alone. */
    readonly tokens: readonly string[]
  }
  readonly members: readonly {
    readonly id: string
    readonly knowsNext: boolean
    readonly uses: 'current' | 'next' | 'both' | 'other'
    /** It learns of another authority at once; false: with its next renewal, as members of earlier releases do. */
    readonly follows: boolean
    readonly certificateEnds: string
  }[]
  readonly removed: readonly { readonly fingerprint: string; readonly at: string; readonly by: 'finish' | 'abort' }[]
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
